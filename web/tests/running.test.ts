import assert from "node:assert/strict";
import { test } from "node:test";
import { isOver, stateNow, timeLeft, wishes } from "../src/lib/running.ts";
import type { HostStatus, RunSeen } from "../src/lib/types.ts";

const status = (told: Partial<HostStatus>): HostStatus => ({ phase: "training", state: "running", paused: false, ...told }) as HostStatus;
const seen = (told: Partial<RunSeen>): RunSeen => ({ state: "running", alive: true, ...told }) as RunSeen;

test("what its host says counts while it lives", () => {
  assert.equal(stateNow(status({ paused: true }), seen({})), "paused");
  assert.equal(stateNow(status({ phase: "testing" }), null), "finishing");
  assert.equal(stateNow(status({ phase: "over", state: "finished" }), null), "finished");
});

test("a host that died cannot be running", () => {
  assert.equal(stateNow(status({}), seen({ alive: false, state: "crashed" })), "crashed");
  assert.ok(isOver("crashed"));
});

test("a word nobody knows is no state", () => {
  assert.equal(stateNow(null, seen({ state: "dancing" as RunSeen["state"] })), "unknown");
  assert.equal(stateNow(null, null), "unknown");
});

test("what can be wished depends on the state", () => {
  assert.deepEqual(wishes("paused", true), ["resume", "finish", "stop"]);
  assert.deepEqual(wishes("crashed", true), ["restart"]);
  assert.deepEqual(wishes("crashed", false), []);
});

test("time left is told once there is something to tell it by", () => {
  assert.equal(timeLeft(0, 100), null);
  assert.equal(timeLeft(0.25, 100), 300);
  assert.equal(timeLeft(1, 100), null);
});
