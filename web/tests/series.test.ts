import assert from "node:assert/strict";
import { test } from "node:test";
import { bounded, grown, lineOf, MOST_TRAINING, thin } from "../src/lib/series.ts";
import type { History, HostStatus } from "../src/lib/types.ts";

const status = (told: Partial<HostStatus>): HostStatus =>
  ({ phase: "training", updates: 1, elapsed_s: 1, epochs_done: 0.1, train_loss: 2, validation: null, members: [], others: { connected: 0 }, ...told }) as HostStatus;

test("a line rises, says each x once, and leaves out what is no number", () => {
  const points: [number, number | null][] = [[2, 5], [1, 4], [3, null], [2, 6], [4, NaN]];
  assert.deepEqual(lineOf(points, ([x]) => x, ([, y]) => y), { x: [1, 2], y: [4, 6] });
});

test("thinning keeps the ends and the peaks", () => {
  const x = Array.from({ length: 10_000 }, (_, n) => n);
  const y = x.map((n) => (n === 4321 ? 99 : n === 777 ? -99 : 0));
  const few = thin({ x, y }, 100);
  assert.ok(few.x.length <= 100);
  assert.equal(few.x[0], 0);
  assert.equal(few.x.at(-1), 9999);
  assert.equal(Math.max(...few.y), 99);
  assert.equal(Math.min(...few.y), -99);
  assert.deepEqual(few.x, [...few.x].sort((a, b) => a - b));
});

test("a short line stays as it is", () => {
  const line = { x: [1, 2], y: [3, 4] };
  assert.equal(thin(line, 10), line);
});

test("a status adds its loss and its evaluation once", () => {
  const empty: History = { evaluations: [], training: [] };
  const point = { at_s: 1, epoch: 0.1, loss: 1, metrics: {}, train_loss: 2 };
  const once = grown(empty, status({ validation: point }));
  assert.equal(once.training.length, 1);
  assert.equal(once.evaluations.length, 1);
  assert.equal(grown(once, status({ validation: point })), once);
  assert.equal(grown(once, status({ elapsed_s: 2, validation: point })).training.length, 2);
});

test("nothing is added before the first update and after training", () => {
  const empty: History = { evaluations: [], training: [] };
  assert.equal(grown(empty, status({ updates: 0 })), empty);
  assert.equal(grown(empty, status({ phase: "testing" })), empty);
});

test("a long history stays bounded, and even from its first to its last", () => {
  let history: History = { evaluations: [], training: [] };
  const count = 6 * MOST_TRAINING;
  for (let n = 0; n <= count; n += 1) {
    const found = { at_s: n, epoch: 0.1, loss: 1, metrics: {}, train_loss: 2 };
    history = grown(history, status({ elapsed_s: n, validation: found }));
  }
  for (const points of [history.training, history.evaluations]) {
    const gaps = points.slice(1).map((point, n) => point.at_s - (points[n]?.at_s ?? 0));
    assert.ok(points.length <= MOST_TRAINING && points.length >= MOST_TRAINING / 4);
    assert.equal(points[0]?.at_s, 0);
    assert.equal(points.at(-1)?.at_s, count);
    assert.ok(Math.max(...gaps) <= (7 * count) / gaps.length);
  }
});

test("what has no length in time is its ends, however much it is", () => {
  const many = Array.from({ length: 20 }, (_, n) => ({ at_s: 5, n }));
  assert.deepEqual(bounded(many, 8).map(({ n }) => n), [0, 19]);
  assert.equal(bounded(many, 20), many);
});
