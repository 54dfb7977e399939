import assert from "node:assert/strict";
import { test } from "node:test";
import { possible, stepped, type Range, type Step } from "../src/lib/zoom.ts";

const ALL: Range = { min: 0, max: 16 };
const after = (...steps: Step[]): Range | null => steps.reduce<Range | null>((now, step) => stepped(now, ALL, step), null);

test("closer halves, wider doubles, until all is seen", () => {
  assert.deepEqual(after("closer"), { min: 4, max: 12 });
  assert.deepEqual(after("closer", "closer"), { min: 6, max: 10 });
  assert.deepEqual(after("closer", "closer", "wider"), { min: 4, max: 12 });
  assert.equal(after("closer", "wider"), null);
  assert.equal(after("closer", "closer", "all"), null);
});

test("earlier and later go half a width, and no further than the curve", () => {
  assert.deepEqual(after("closer", "earlier"), { min: 0, max: 8 });
  assert.deepEqual(after("closer", "earlier", "earlier"), { min: 0, max: 8 });
  assert.deepEqual(after("closer", "later", "later"), { min: 8, max: 16 });
  assert.equal(after("later"), null);
});

test("what would change nothing is not possible", () => {
  assert.deepEqual((["closer", "wider", "earlier", "later", "all"] as const).map((step) => possible(null, ALL, step)), [true, false, false, false, false]);
  assert.equal(possible({ min: 0, max: 8 }, ALL, "earlier"), false);
  assert.equal(possible({ min: 0, max: 8 }, ALL, "later"), true);
  assert.equal(possible(null, { min: 3, max: 3 }, "closer"), false);
  let now: Range | null = null;
  let steps = 0;
  for (; possible(now, ALL, "closer") && steps < 50; steps += 1) now = stepped(now, ALL, "closer");
  assert.equal(steps, 10);
});
