import assert from "node:assert/strict";
import { test } from "node:test";
import { closeness, decades, rescale } from "../src/lib/estimate.ts";

const measured = {
  parameters: 1000, bytes_per_update: 4000, data_bytes: 64_000, samples: 1001, batch_size: 100, epochs: 10, volunteers: 0,
  steps_per_epoch: 11, step_s: 0.21, samples_per_s: 433, epoch_s: 2.31, total_s: 23.1, memory_bytes: 1_000_000,
  step_fixed_s: 0.01, step_sample_s: 0.002, memory_fixed_bytes: 600_000, memory_sample_bytes: 4000, minutes: null, fixed_batch: 0, bytes_by_codec: {},
};
const near = (found: number | null, wanted: number): void => assert.ok(Math.abs((found ?? NaN) - wanted) < 1e-9, `${found}`);

test("a larger batch means fewer and longer steps; the last one may be small", () => {
  assert.equal(rescale(measured, 100, 10, 1).steps_per_epoch, 11);
  const large = rescale(measured, 500, 10, 1);
  assert.equal(large.steps_per_epoch, 3);
  near(large.step_s, 1.01);
  assert.equal(rescale({ ...measured, fixed_batch: 91 }, 500, 10, 1).steps_per_epoch, 11);
});

test("computers share the steps of an epoch; epochs add up; an update weighs the same", () => {
  near(rescale(measured, 100, 10, 1).total_s, 23.1);
  const four = rescale(measured, 100, 20, 4);
  near(four.epoch_s, 3 * 0.21);
  near(four.total_s, 60 * 0.21);
  assert.equal(four.bytes_per_update, 4000);
  near(rescale({ ...measured, minutes: 0.1 }, 100, 10, 1).total_s, 6);
});

test("an update weighs what its codec makes of it", () => {
  const known = { ...measured, bytes_by_codec: { fp32: 4000, fp16: 2010 } };
  assert.equal(rescale(known, 100, 10, 1, "fp16").bytes_per_update, 2010);
  assert.equal(rescale(known, 100, 10, 1).bytes_per_update, 4000);
  assert.equal(rescale(measured, 100, 10, 1, "fp16").bytes_per_update, 4000); // of before there was a choice
});

test("a larger batch takes more memory, and its samples come faster", () => {
  assert.deepEqual([rescale(measured, 100, 10, 1), rescale(measured, 500, 10, 1)].map((one) => one.memory_bytes), [1_000_000, 2_600_000]);
  near(rescale(measured, 500, 10, 1).samples_per_s, 1001 / 3.03);
  near(rescale(measured, 100, 10, 4).samples_per_s, 1001 / 0.63);
});

test("an unmeasured speed gives no time, and senseless numbers no infinity", () => {
  assert.equal(rescale({ ...measured, step_s: null, total_s: null }, 100, 10, 1).total_s, null);
  assert.equal(rescale(measured, 0, 1, 0).steps_per_epoch, 1001);
});

test("a slider over magnitudes stops at 1, 2, 5", () => {
  assert.deepEqual(decades(0.001, 0.1), [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1]);
});

test("errors of gradients in words", () => {
  assert.deepEqual([1e-8, 1e-4, 0.5, null].map(closeness), ["exact", "close", "far", "unknown"]);
});
