/** A host that starts: it is followed whatever page is shown, and led to where nobody has left the host page. */
import { asProblem, post, type Problem } from "./api.ts";
import { became } from "./begun.ts";
import { hosting } from "./hosting.svelte.ts";
import { live } from "./live.svelte.ts";
import { go, here } from "./route.svelte.ts";
import type { HostWish, Saved, SaveWish, Started } from "./types.ts";

class Beginning {
  busy = $state(false);
  stopped = $state(false);
  problem = $state.raw<Problem | null>(null);
  saved = $state.raw<Saved | null>(null);
  /** How often the panel had told everything when the child was named. */
  #since = 0;
  /** Whether another page was shown since. */
  #left = false;

  constructor() {
    $effect.root(() => {
      $effect(() => {
        if (here.route.page !== "host") this.#left = true;
      });
      $effect(() => this.#follow());
    });
  }

  get starting(): boolean {
    return hosting.now.child !== "";
  }

  get doing(): string {
    return this.#child?.doing ?? "";
  }

  start(): Promise<void> {
    return this.#wish(async () => {
      const { agree } = hosting.now;
      this.#left = false;
      const { run } = await post<Started, HostWish>("/api/host", { ...hosting.wish, agree });
      this.#since = live.lives;
      hosting.now.child = run;
    });
  }

  stop(): Promise<void> {
    return this.#wish(async () => {
      await post(`/api/runs/${encodeURIComponent(this.#child?.run ?? hosting.now.child)}/stop`);
      hosting.now.child = "";
      this.stopped = true;
    });
  }

  save(): Promise<void> {
    return this.#wish(async () => {
      this.saved = await post<Saved, SaveWish>("/api/job", hosting.wish);
    });
  }

  /** What was said was read: it is not said again. */
  read(): void {
    this.problem = this.saved = null;
    this.stopped = false;
  }

  get #child() {
    return live.panel.children.find((one) => one.id === hosting.now.child);
  }

  #follow(): void {
    if (!this.starting || this.busy) return; // who stops it hears so from its answer
    const found = became(this.#child, live.lives > this.#since);
    if (found.kind === "starts") return;
    hosting.now.child = "";
    if (found.kind === "failed") this.problem = found.problem;
    else if (!this.#left) go("run", found.run);
  }

  async #wish(act: () => Promise<void>): Promise<void> {
    if (this.busy) return;
    this.busy = true;
    this.problem = null;
    this.stopped = false;
    try {
      await act();
    } catch (error) {
      this.problem = asProblem(error);
    } finally {
      this.busy = false;
    }
  }
}

export const beginning = new Beginning();
