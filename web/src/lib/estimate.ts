/** What other choices would mean, from one measured estimate: nothing is asked of the server. */
import type { Estimate } from "./types.ts";

/** What a model exchanges for one step beyond one computer is not known here: time is without it. */
export function rescale(estimate: Estimate, batch: number, epochs: number, volunteers: number): Estimate {
  const size = Math.max(1, Math.round(batch));
  const helpers = Math.max(1, Math.round(volunteers));
  const steps = Math.ceil(estimate.samples / size);
  const epoch_s = estimate.samples_per_s > 0 ? estimate.samples / (estimate.samples_per_s * helpers) : 0;
  return {
    ...estimate,
    steps_per_epoch: steps,
    step_s: estimate.samples_per_s > 0 ? size / estimate.samples_per_s : 0,
    epoch_s,
    total_s: epoch_s * Math.max(0, epochs),
  };
}

/** From `least` to `most` in steps of 1, 2, 5: what a slider over magnitudes stops at. */
export function decades(least: number, most: number): number[] {
  const found: number[] = [];
  for (let power = Math.floor(Math.log10(least)); power <= Math.log10(most); power += 1) {
    for (const digit of [1, 2, 5]) {
      const value = Number(`${digit}e${power}`);
      if (value >= least && value <= most) found.push(value);
    }
  }
  return found;
}

/** How a model's gradients compare with PyTorch's. */
export function closeness(error: number | null | undefined): "exact" | "close" | "far" | "unknown" {
  if (error === null || error === undefined) return "unknown";
  if (error <= 1e-6) return "exact";
  return error <= 1e-2 ? "close" : "far";
}
