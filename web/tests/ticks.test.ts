import assert from "node:assert/strict";
import { test } from "node:test";
import { markRoom, spellMark, TIME_STEPS } from "../src/lib/ticks.ts";

test("marks say all of their time, and nothing that is zero", () => {
  assert.deepEqual([0, 2.5, 60, 90, 3600, 5430].map(spellMark), ["0 s", "2.5 s", "1 min", "1 min 30 s", "1 h", "1 h 30 min 30 s"]);
  assert.deepEqual([86_400, 216_000, 0.1 + 0.2].map(spellMark), ["1 day", "2 days 12 h", "0.3 s"]);
});

test("steps rise, and marks a step apart read differently wherever they stand", () => {
  for (const [n, step] of TIME_STEPS.entries()) {
    assert.ok(step > (TIME_STEPS[n - 1] ?? 0));
    for (const from of [0, 59, 3540, 86_340, 250_000]) {
      const marks = [0, 1, 2, 3].map((more) => spellMark((Math.ceil(from / step) + more) * step));
      assert.equal(new Set(marks).size, 4, marks.join());
    }
  }
});

test("longer words have more room", () => {
  assert.ok(markRoom(60) < markRoom(7200) && markRoom(7200) < markRoom(200_000));
});
