import assert from "node:assert/strict";
import { test } from "node:test";
import { answered, asks, failed, givenUp, MOST_TRIES, UNSAMPLED, type Sampled } from "../src/lib/sampling.ts";

const starting = { begins: true, trains: false, settled: false };
const training = { begins: false, trains: true, settled: false };
const resting = { begins: false, trains: false, settled: false };
const over = { begins: false, trains: false, settled: true };
const inVain = (times: number, settled: boolean, from: Sampled = UNSAMPLED): Sampled =>
  Array.from({ length: times }).reduce<Sampled>((sampled) => failed(sampled, settled), from);

test("a model is asked while it learns, and once when it rests or is done", () => {
  assert.ok(!asks(starting, UNSAMPLED));
  assert.ok(asks(training, UNSAMPLED));
  assert.ok(asks(training, answered(false)));
  assert.ok(asks(resting, UNSAMPLED));
  assert.ok(!asks(resting, answered(false)));
  assert.ok(asks(over, answered(false))); // what was said was of another
  assert.ok(!asks(over, answered(true)));
});

test("who does not answer is not asked for ever", () => {
  assert.ok(asks(over, inVain(MOST_TRIES - 1, true)));
  const tired = inVain(MOST_TRIES, true);
  assert.ok(!asks(over, tired));
  assert.ok(givenUp(over, tired));
  assert.ok(!givenUp(over, UNSAMPLED));
  assert.ok(asks(training, inVain(99, false))); // it may answer any moment
  assert.ok(!givenUp(over, inVain(MOST_TRIES, true, answered(true))));
});

test("the model at the end is another one to ask", () => {
  const tired = inVain(MOST_TRIES, false);
  assert.ok(!asks(resting, tired));
  assert.ok(asks(over, tired));
  assert.ok(!givenUp(over, tired));
});
