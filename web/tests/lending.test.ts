import assert from "node:assert/strict";
import { test } from "node:test";
import { badHours, causesOf, flop, hoursOf, lending, spellHours } from "../src/lib/lending.ts";
import type { Child, WorkStatus } from "../src/lib/types.ts";

const child = (state: Child["state"]): Child => ({ id: state, kind: "work", state, doing: "", run: null, title: "", error: null });
const work = (state: WorkStatus["state"]): WorkStatus => ({ state }) as WorkStatus;

test("whether it lends, by the last child and its word", () => {
  assert.equal(lending(null, []), "off");
  assert.equal(lending(work("working"), []), "on"); // the stream has not told the children yet
  assert.equal(lending(null, [child("starting")]), "starting");
  assert.equal(lending(work("working"), [child("over"), child("running")]), "on");
  assert.equal(lending(work("working"), [child("running"), child("failed")]), "off");
  assert.equal(lending(work("over"), [child("running")]), "ending"); // who starts it now is told that it is busy
  assert.equal(lending(work("over"), [child("over")]), "off");
  assert.equal(lending(work("over"), []), "off");
});

test("hours as people and the volunteer write them", () => {
  assert.deepEqual(hoursOf("22-7"), { from: "22:00", to: "07:00" });
  assert.deepEqual([hoursOf(""), hoursOf("late")], [null, null]);
  assert.equal(spellHours({ from: "22:00", to: "07:30" }), "22:00-07:30");
  assert.deepEqual([spellHours({ from: "07:00", to: "07:00" }), spellHours({ from: "", to: "07:00" })], [null, null]);
});

test("why times are no hours", () => {
  assert.equal(badHours({ from: "22:00", to: "07:00" }), "");
  assert.equal(badHours({ from: "22:00", to: "" }), "incomplete");
  assert.equal(badHours({ from: "", to: "" }), "incomplete");
  assert.equal(badHours({ from: "07:00", to: "07:00" }), "same");
});

test("credit and causes", () => {
  assert.deepEqual([0, 1234, 999.6, 2.5e15].map(flop), ["0 FLOP", "1.23 kFLOP", "1 kFLOP", "2.5 PFLOP"]);
  assert.deepEqual(causesOf(" health, climate;health,\n"), ["health", "climate"]);
});
