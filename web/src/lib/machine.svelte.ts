/** What this machine is: asked once, by whoever shows it first. */
import { asProblem, get, type Problem } from "./api.ts";
import type { Machine } from "./types.ts";

class ThisMachine {
  known = $state.raw<Machine | null>(null);
  problem = $state.raw<Problem | null>(null);

  async look(): Promise<void> {
    try {
      this.known ??= await get<Machine>("/api/machine");
      this.problem = null;
    } catch (error) {
      this.problem = asProblem(error);
    }
  }
}

export const machine = new ThisMachine();
