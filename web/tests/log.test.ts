import assert from "node:assert/strict";
import { test } from "node:test";
import { clock, further } from "../src/lib/log.ts";
import type { LogLine } from "../src/lib/types.ts";

const seconds = (...when: [number, number, number, number, number, number]): number => new Date(...when).getTime() / 1000;
const line = (at: number): LogLine => ({ n: at, at, level: "info", text: "" });

test("a line of another day says which", () => {
  const now = seconds(2026, 2, 3, 18, 0, 0);
  assert.equal(clock(seconds(2026, 2, 3, 9, 5, 7), now), "09:05:07");
  assert.equal(clock(seconds(2026, 2, 2, 23, 59, 59), now), "2 Mar 2026, 23:59:59");
});

test("of two tellings the one that goes on longer is shown", () => {
  const [short, long] = [[line(1)], [line(1), line(2)]];
  assert.equal(further(short, long), long);
  assert.equal(further(long, short), long);
  assert.equal(further(short, []), short);
});
