/** Limits as a person moves them: shown at once, sent when they rest, taken back when refused. */
import { asProblem, put, type Problem } from "./api.ts";
import { sameLimits } from "./lending.ts";
import type { Limits, WorkAnswer } from "./types.ts";

const REST_MS = 300;
/** After that the volunteer's word counts again, whatever it says. */
const TRUST_MS = 4000;

export class Limiter {
  /** What the person wants, until the volunteer says the same. */
  wanted = $state.raw<Limits | null>(null);
  problem = $state.raw<Problem | null>(null);
  kept = $state(false);

  #timer = 0;

  want(limits: Limits): void {
    this.wanted = limits;
    this.problem = null;
    this.kept = false;
    window.clearTimeout(this.#timer);
    this.#timer = window.setTimeout(() => void this.#send(limits), REST_MS);
  }

  /** What the volunteer says now. */
  hear(told: Limits): void {
    if (this.kept && this.wanted && sameLimits(told, this.wanted)) this.wanted = null;
  }

  async #send(limits: Limits): Promise<void> {
    try {
      const told = await put<WorkAnswer>("/api/work/limits", limits);
      if (!told.holds) throw new Error(told.reason);
      if (this.wanted !== limits) return;
      this.kept = true;
      this.#timer = window.setTimeout(() => (this.wanted = null), TRUST_MS);
    } catch (error) {
      if (this.wanted !== limits) return; // moved again meanwhile
      this.wanted = null;
      this.problem = asProblem(error);
    }
  }
}
