import assert from "node:assert/strict";
import { test } from "node:test";
import { filled, inkBox, onBright, shrink } from "../src/lib/drawing.ts";

function sheet(side: number, left: number, top: number, width: number, height: number): number[] {
  return Array.from({ length: side * side }, (_, at) => {
    const [x, y] = [at % side, Math.floor(at / side)];
    return x >= left && x < left + width && y >= top && y < top + height ? 1 : 0;
  });
}

test("a blank sheet is nothing to ask about", () => {
  assert.equal(shrink(sheet(50, 0, 0, 0, 0), 50, 50, 28, 28), null);
});

test("ink is found", () => {
  assert.deepEqual(inkBox(sheet(50, 3, 7, 10, 20), 50, 50), { left: 3, right: 13, top: 7, bottom: 27 });
});

test("wherever and however large it is drawn, the model sees the same", () => {
  const small = shrink(sheet(280, 5, 5, 10, 40), 280, 280, 28, 28) ?? [];
  const large = shrink(sheet(280, 200, 60, 50, 200), 280, 280, 28, 28) ?? [];
  assert.equal(small.length, 784);
  small.forEach((value, at) => assert.ok(Math.abs(value - (large[at] ?? 0)) < 1e-6));
});

test("it fills 20 of 28 rows, in the middle", () => {
  const seen = shrink(sheet(280, 100, 40, 40, 200), 280, 280, 28, 28) ?? [];
  const rows = Array.from({ length: 28 }, (_, row) => seen.slice(row * 28, row * 28 + 28).some((value) => value > 0.5));
  assert.equal(rows.filter(Boolean).length, 20);
  assert.equal(rows.indexOf(true), 4);
  assert.ok(seen.every((value) => value >= 0 && value <= 1));
});

test("it is made as large as the samples are", () => {
  const whole = sheet(8, 2, 0, 4, 8);
  const half = sheet(8, 2, 2, 2, 4);
  assert.equal(filled([whole, half, whole], 8, 8, false), 1);
  assert.equal(filled([half.map((value) => 1 - value)], 8, 8, true), 0.5);
  assert.equal(filled([], 8, 8, false), 20 / 28);
  const seen = shrink(sheet(280, 100, 40, 100, 200), 280, 280, 8, 8, 1) ?? [];
  const rows = Array.from({ length: 8 }, (_, row) => seen.slice(row * 8, row * 8 + 8).some((value) => value > 0.5));
  assert.ok(rows.every(Boolean));
});

test("what is drawn at the edge does not fall off", () => {
  const seen = shrink(sheet(100, 98, 0, 2, 100), 100, 100, 8, 8) ?? [];
  assert.ok(Math.max(...seen) > 0.9);
});

test("pictures on bright paper are told from those on dark", () => {
  assert.equal(onBright([[1, 0, 1, 1]], 2, 2), true);
  assert.equal(onBright([[0, 0, 1, 0]], 2, 2), false);
  assert.equal(onBright([], 2, 2), false);
});

test("a model of large pictures is drawn for, too", () => {
  const seen = shrink(sheet(280, 100, 40, 100, 200), 280, 280, 512, 512) ?? [];
  assert.equal(seen.length, 512 * 512);
  assert.equal(seen.reduce((a, b) => Math.max(a, b), 0), 1);
});
