import assert from "node:assert/strict";
import { test } from "node:test";
import { inSight, nextOrder, placed, sorted } from "../src/lib/members.ts";
import type { Member } from "../src/lib/types.ts";

const member = (position: number, told: Partial<Member> = {}): Member =>
  ({ position, name: `laptop ${position}`, connected: true, state: "working", samples_per_s: 0, ...told }) as Member;

test("names sort as people count", () => {
  const found = sorted([member(10), member(9), member(1)], { by: "name", down: false });
  assert.deepEqual(found.map((one) => one.position), [1, 9, 10]);
});

test("numbers sort both ways, equals by position, and the list given is left alone", () => {
  const given = [member(2, { samples_per_s: 5 }), member(1, { samples_per_s: 5 }), member(3, { samples_per_s: 9 })];
  assert.deepEqual(sorted(given, { by: "samples_per_s", down: true }).map((one) => one.position), [3, 1, 2]);
  assert.deepEqual(sorted(given, { by: "samples_per_s", down: false }).map((one) => one.position), [1, 2, 3]);
  assert.deepEqual(given.map((one) => one.position), [2, 1, 3]);
});

test("who is here comes before who has gone", () => {
  const found = sorted([member(1, { connected: false }), member(2)], { by: "state", down: false });
  assert.deepEqual(found.map((one) => one.position), [2, 1]);
});

test("rows that change places keep theirs in the document", () => {
  const told = (...shares: number[]): Member[] => shares.map((share, position) => member(position, { share }));
  const rows = (members: Member[], first = 0, end = 3): number[][] =>
    placed(sorted(members, { by: "share", down: true }), { first, end }).map((row) => [row.member.position, row.index]);
  assert.deepEqual(rows(told(1, 2, 3)), [[0, 2], [1, 1], [2, 0]]);
  assert.deepEqual(rows(told(5, 2, 3)), [[0, 0], [1, 2], [2, 1]]);
  assert.deepEqual(rows(told(5, 2, 3, 4), 1), [[2, 2], [3, 1]]);
});

test("the same column again turns the order round", () => {
  assert.deepEqual(nextOrder({ by: "name", down: false }, "name"), { by: "name", down: true });
  assert.deepEqual(nextOrder({ by: "name", down: false }, "share"), { by: "share", down: true });
});

test("of a thousand rows only those in sight are made", () => {
  assert.deepEqual(inSight(0, 400, 40, 1000), { first: 0, end: 16 });
  assert.deepEqual(inSight(20_000, 400, 40, 1000), { first: 494, end: 516 });
  assert.deepEqual(inSight(20_000, 400, 40, 0), { first: 0, end: 0 });
  assert.equal(inSight(40_000, 400, 40, 1000).end, 1000);
});
