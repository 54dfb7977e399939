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

test("marks have room for as many words as they may take", () => {
  assert.deepEqual([markRoom(0, 50, 500), markRoom(0, 1300, 500), markRoom(0, 8000, 500), markRoom(0, 300_000, 500)], [70, 70, 95, 95]);
  assert.equal(markRoom(299_900, 300_000, 500), 145); // 3 days 11 h 19 min 50 s
  assert.equal(markRoom(0, 50_000_000, 500), 70);
});
