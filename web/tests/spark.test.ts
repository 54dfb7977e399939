import assert from "node:assert/strict";
import { test } from "node:test";
import { spark } from "../src/lib/spark.ts";

test("a small curve fills its room but for the edges", () => {
  assert.equal(spark([], 100, 50), "");
  assert.equal(spark([{ at_s: 0, value: 1 }, { at_s: 5, value: 2 }, { at_s: 10, value: 3 }], 108, 58), "4.0,54.0 54.0,29.0 104.0,4.0");
  assert.equal(spark([{ at_s: 0, value: 1 }, { at_s: 10, value: 1 }], 108, 58), "4.0,29.0 104.0,29.0"); // level, in the middle
});
