/** Whether the chosen model can travel; a check goes on whatever page is shown. */
import { post } from "./api.ts";
import { Errand } from "./errand.svelte.ts";
import { hosting } from "./hosting.svelte.ts";
import type { Begun, CheckReport } from "./types.ts";

class Checking {
  readonly errand = new Errand<CheckReport>("check");

  /** What was begun before a reload. */
  resume(): Promise<void> {
    return this.#told(this.errand.again());
  }

  check(): Promise<void> {
    hosting.now.asked = hosting.subject;
    return this.#told(this.errand.run(() => post<Begun>("/api/check", { draft: hosting.draft })));
  }

  /** Whether to check without being asked: it was asked once, and sliders have moved since. */
  get due(): boolean {
    return hosting.report !== null && hosting.draft.model !== null && hosting.now.asked !== hosting.subject;
  }

  async #told(coming: Promise<CheckReport | null>): Promise<void> {
    const { asked } = hosting.now;
    const report = await coming;
    if (report) hosting.learn(report, asked);
  }
}

export const checking = new Checking();
