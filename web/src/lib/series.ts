/** Curves: what a run's history says as lines to draw, and how a history grows while it is watched. */
import type { History, HostStatus, Point, TrainingPoint } from "./types.ts";

export type Axis = "epoch" | "time";
export interface Line {
  x: number[];
  y: number[];
}

export const MOST_TRAINING = 4000;
export const MOST_DRAWN = 1200;
const LEAST_APART_S = 0.4;

/** As charts need it: x rising, each x once (the last word counts), nothing that is not a number. */
export function lineOf<T>(points: readonly T[], x: (point: T) => number, y: (point: T) => number | null | undefined): Line {
  const found = new Map<number, number>();
  for (const point of points) {
    const [at, value] = [x(point), y(point)];
    if (Number.isFinite(at) && typeof value === "number" && Number.isFinite(value)) found.set(at, value);
  }
  const pairs = [...found].sort(([a], [b]) => a - b);
  return { x: pairs.map(([at]) => at), y: pairs.map(([, value]) => value) };
}

/** At most about `most` points, keeping the ends and each stretch's lowest and highest. */
export function thin(line: Line, most: number = MOST_DRAWN): Line {
  const count = line.x.length;
  if (count <= most) return line;
  const stretches = Math.max(1, Math.floor((most - 2) / 2));
  const kept = new Set<number>([0, count - 1]);
  for (let n = 0; n < stretches; n += 1) {
    const [from, to] = [Math.floor((n * count) / stretches), Math.floor(((n + 1) * count) / stretches)];
    let [low, high] = [from, from];
    for (let at = from; at < to; at += 1) {
      if ((line.y[at] ?? 0) < (line.y[low] ?? 0)) low = at;
      if ((line.y[at] ?? 0) > (line.y[high] ?? 0)) high = at;
    }
    kept.add(low).add(high);
  }
  const order = [...kept].sort((a, b) => a - b);
  return { x: order.map((at) => line.x[at] ?? 0), y: order.map((at) => line.y[at] ?? 0) };
}

export const place = (axis: Axis) => (point: { epoch: number; at_s: number }): number =>
  axis === "epoch" ? point.epoch : point.at_s;

/** The first metric of an evaluation. */
export function watched(point: Point, metric: string | null): number | null {
  return metric === null ? null : (point.metrics[metric] ?? null);
}

/** The history with what a status adds; the same object where it adds nothing. */
export function grown(history: History, status: HostStatus): History {
  const training = grownTraining(history.training, status);
  const evaluations = grownEvaluations(history.evaluations, status.validation);
  const same = training === history.training && evaluations === history.evaluations;
  return same ? history : { training, evaluations };
}

function grownTraining(known: TrainingPoint[], status: HostStatus): TrainingPoint[] {
  const last = known.at(-1)?.at_s ?? -1;
  const fresh = status.phase === "training" && status.train_loss !== null && status.updates > 0;
  if (!fresh || status.elapsed_s < last + LEAST_APART_S) return known;
  const point: TrainingPoint = {
    at_s: status.elapsed_s,
    epoch: status.epochs_done,
    loss: status.train_loss,
    samples_per_s: status.samples_per_s,
    updates_per_s: status.updates_per_s,
    staleness: status.mean_staleness,
    members: status.members.filter((member) => member.connected).length + status.others.connected,
    bytes_received_per_s: status.bytes_received_per_s,
    bytes_sent_per_s: status.bytes_sent_per_s,
    learning_rate: status.learning_rate,
  };
  return bounded([...known, point]);
}

/**
 * The same where they are few; else about evenly over all of their time, the ends kept: those that lie a stride apart,
 * as the host keeps them (`crowdgrad/host/telling/evenly.py`). Strides are powers of two, so that they grow seldom.
 */
export function bounded<T extends { at_s: number }>(points: T[], most: number = MOST_TRAINING): T[] {
  const [first, last] = [points[0], points.at(-1)];
  if (points.length <= most || !first || !last) return points;
  const passed = last.at_s - first.at_s;
  const stride = passed > 0 ? 2 ** Math.ceil(Math.log2((1.5 * passed) / most)) : Infinity;
  const kept = [first];
  for (const point of points.slice(1, -1)) {
    if (point.at_s - (kept.at(-1) ?? first).at_s >= stride) kept.push(point);
  }
  return [...kept, last];
}

function grownEvaluations(known: Point[], found: Point | null): Point[] {
  return found && found.at_s > (known.at(-1)?.at_s ?? -1) ? bounded([...known, found]) : known;
}
