/** What other choices would mean, from one measured estimate: nothing is asked of the server. */
import type { Estimate } from "./types.ts";

/**
 * The same job with other numbers, on so many computers; see crowdgrad/host/estimating.py. What goes over the
 * network is not known here: time is without it.
 */
export function rescale(estimate: Estimate, batch: number, epochs: number, computers: number, codec = ""): Estimate {
  const batch_size = estimate.fixed_batch || Math.max(1, Math.round(batch));
  const steps_per_epoch = Math.ceil(estimate.samples / batch_size);
  const memory_bytes = estimate.memory_fixed_bytes + estimate.memory_sample_bytes * batch_size;
  const bytes_per_update = estimate.bytes_by_codec?.[codec] ?? estimate.bytes_per_update;
  const changed = { ...estimate, bytes_per_update, batch_size, epochs, volunteers: computers - 1, steps_per_epoch, memory_bytes };
  if (estimate.step_s === null) return changed;
  const step_s = estimate.step_fixed_s + estimate.step_sample_s * batch_size;
  const epoch_s = Math.ceil(steps_per_epoch / Math.max(1, computers)) * step_s; // nobody computes half a step
  const most_s = estimate.minutes === null ? Infinity : 60 * estimate.minutes;
  const samples_per_s = epoch_s > 0 ? estimate.samples / epoch_s : null;
  return { ...changed, step_s, samples_per_s, epoch_s, total_s: Math.min(epochs * epoch_s, most_s) };
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
