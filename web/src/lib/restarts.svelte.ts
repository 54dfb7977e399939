/** Which child goes on with which run: it says so itself only once it has begun. */

const KEY = "crowdgrad-restarts";

function kept(): Record<string, string> {
  try {
    return JSON.parse(sessionStorage.getItem(KEY) ?? "{}") as Record<string, string>;
  } catch {
    return {};
  }
}

class Restarts {
  #of = $state<Record<string, string>>(kept());

  child(run: string): string {
    return this.#of[run] ?? "";
  }

  note(run: string, child: string): void {
    this.#of[run] = child;
    try {
      sessionStorage.setItem(KEY, JSON.stringify(this.#of));
    } catch {
      // A full or forbidden store costs only the memory of a reload.
    }
  }
}

export const restarts = new Restarts();
