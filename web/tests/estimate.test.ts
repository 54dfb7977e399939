import assert from "node:assert/strict";
import { test } from "node:test";
import { closeness, decades, rescale } from "../src/lib/estimate.ts";

const measured = {
  parameters: 1000, bytes_per_update: 4000, data_bytes: 64_000, samples: 1001, steps_per_epoch: 11,
  step_s: 0.1, samples_per_s: 1000, epoch_s: 1.001, total_s: 10.01, memory_bytes: 1_000_000,
};

test("a larger batch means fewer steps; the last one may be small", () => {
  assert.equal(rescale(measured, 100, 10, 1).steps_per_epoch, 11);
  assert.equal(rescale(measured, 500, 10, 1).steps_per_epoch, 3);
});

test("volunteers share an epoch; epochs add up; an update weighs the same", () => {
  const one = rescale(measured, 100, 10, 1);
  const four = rescale(measured, 100, 20, 4);
  assert.ok(Math.abs(one.total_s - 10.01) < 1e-9);
  assert.ok(Math.abs(four.epoch_s - one.epoch_s / 4) < 1e-9);
  assert.ok(Math.abs(four.total_s - one.total_s / 2) < 1e-9);
  assert.equal(four.bytes_per_update, 4000);
});

test("an unmeasured speed gives no time, and senseless numbers no infinity", () => {
  assert.equal(rescale({ ...measured, samples_per_s: 0 }, 100, 10, 1).total_s, 0);
  assert.equal(rescale(measured, 0, 1, 0).steps_per_epoch, 1001);
});

test("a slider over magnitudes stops at 1, 2, 5", () => {
  assert.deepEqual(decades(0.001, 0.1), [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1]);
});

test("errors of gradients in words", () => {
  assert.deepEqual([1e-8, 1e-4, 0.5, null].map(closeness), ["exact", "close", "far", "unknown"]);
});
