import assert from "node:assert/strict";
import { test } from "node:test";
import { became } from "../src/lib/begun.ts";
import { t } from "../src/lib/texts.ts";
import type { Child } from "../src/lib/types.ts";

const child = (state: Child["state"], more: Partial<Child> = {}): Child => ({ id: "a", kind: "host", state, doing: "", run: null, title: "", error: null, ...more });
const told = (found: ReturnType<typeof became>): string => (found.kind === "failed" ? found.problem.message : found.kind);

test("a host starts until it names its run", () => {
  assert.equal(told(became(undefined, false)), "starts"); // the stream is behind the answer
  assert.equal(told(became(child("starting"), true)), "starts");
  assert.equal(told(became(child("running"), true)), "starts");
  assert.deepEqual(became(child("running", { run: "b" }), false), { kind: "run", run: "b" });
  assert.deepEqual(became(child("over", { run: "b" }), false), { kind: "run", run: "b" });
});

test("one that never began says why", () => {
  const words = t.host.publish;
  const error = { code: "CG1", message: "no", advice: "", bad: [] };
  assert.equal(told(became(undefined, true)), words.gone);
  assert.equal(told(became(child("failed", { error, run: "b" }), true)), "no");
  assert.equal(told(became(child("failed", { doing: "died" }), true)), "died");
  assert.equal(told(became(child("over"), true)), words.over);
});
