/** Which part of a curve is looked at; null: all of it. */

export interface Range {
  min: number;
  max: number;
}
export type Step = "closer" | "wider" | "earlier" | "later" | "all";

export const STEPS: readonly Step[] = ["closer", "wider", "earlier", "later", "all"];
/** So far one can go: a thousandth of all. */
const CLOSEST = 1000;

/** `all`: where the curve begins and ends. */
export function stepped(now: Range | null, all: Range, step: Step): Range | null {
  const { min, max } = now ?? all;
  const wide = max - min;
  if (step === "closer") return within(min + wide / 4, Math.max(wide / 2, (all.max - all.min) / CLOSEST), all);
  if (step === "wider") return within(min - wide / 2, 2 * wide, all);
  if (step === "all" || now === null) return null;
  return within(min + (step === "later" ? wide / 2 : -wide / 2), wide, all);
}

/** Whether a step would show something else. */
export function possible(now: Range | null, all: Range, step: Step): boolean {
  if (all.max <= all.min) return false;
  if (step === "closer") return now === null || CLOSEST * (now.max - now.min) > 1.001 * (all.max - all.min);
  if (now === null) return false;
  return step === "earlier" ? now.min > all.min : step === "later" ? now.max < all.max : true;
}

function within(from: number, wide: number, all: Range): Range | null {
  if (wide >= all.max - all.min) return null;
  const min = Math.min(Math.max(from, all.min), all.max - wide);
  return { min, max: min + wide };
}
