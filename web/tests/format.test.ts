import assert from "node:assert/strict";
import { test } from "node:test";
import { bytes, duration, moment, relative, score, short, trimmed } from "../src/lib/format.ts";

test("numbers are as long as people can read", () => {
  const said = [0, 0.417, 7, 1437, 17_970, 171_632, 999_999, 25_940_000].map(short);
  assert.deepEqual(said, ["0", "0.417", "7", "1,437", "17,970", "172,000", "1 million", "25.9 million"]);
});

test("sizes and times have their unit", () => {
  assert.deepEqual([0, 999, 104_488, 25.3e9].map(bytes), ["0 B", "999 B", "104 kB", "25.3 GB"]);
  assert.deepEqual([0, 59.6, 90, 7260, 200_000].map(duration), ["0 s", "1 min", "1 min 30 s", "2 h 1 min", "2 days"]);
  assert.deepEqual([relative(100, 100), relative(40, 100), relative(7300, 100)], ["now", "1 min ago", "in 2 h 0 min"]);
});

test("shares are spelled as such, losses are not", () => {
  assert.deepEqual([score(0.965, "accuracy", "higher"), score(0.0696, null, "lower"), score(null, null, "lower")], ["96.50 %", "0.0696", "–"]);
  assert.equal(score(0.25, "word error rate", "lower"), "0.2500"); // as its host says it
  assert.deepEqual([score(1.5, "f1 sum", "higher"), score(12_345, "perplexity", "lower")], ["1.5000", "1.235e+4"]);
});

test("when it was is spelled to the minute", () => {
  const at = new Date(2026, 10, 9, 7, 5).getTime() / 1000;
  assert.equal(moment(at), "Nov 9, 07:05");
  assert.equal(moment(at + 30), moment(at));
});

test("zeros that say nothing are left out, and no others", () => {
  const given = ["96.50 %", "20.00 %", "10.0000", "0.1050", "1200", "1.200e+4", "–"];
  assert.deepEqual(given.map(trimmed), ["96.5 %", "20 %", "10", "0.105", "1200", "1.2e+4", "–"]);
});
