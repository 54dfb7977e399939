/** Which child goes on with which run: it says so itself only once it has begun. */
import { recall, remember } from "./tab.ts";

const KEY = "crowdgrad-restarts";

class Restarts {
  #of = $state(recall<Record<string, string>>(KEY) ?? {});

  child(run: string): string {
    return this.#of[run] ?? "";
  }

  note(run: string, child: string): void {
    this.#of[run] = child;
    remember(KEY, this.#of);
  }
}

export const restarts = new Restarts();
