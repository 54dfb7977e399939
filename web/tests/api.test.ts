import assert from "node:assert/strict";
import { test } from "node:test";
import { asProblem, call, isMissing, problemOf, Refused } from "../src/lib/api.ts";

test("a refusal is told in the server's words", () => {
  const inner = { code: "CG-T1", message: "no such run", advice: "look again" };
  assert.deepEqual(problemOf({ detail: "no such run", error: inner }, 404), inner);
  assert.deepEqual(problemOf({ detail: "no such run" }, 404), { code: "404", message: "no such run", advice: "" });
  assert.match(problemOf(null, 502).message, /502/);
});

test("what is missing is not what does not answer", () => {
  const problem = problemOf(null, 404);
  assert.ok(isMissing(new Refused(404, problem)));
  assert.ok(!isMissing(new Refused(0, problem)));
  assert.ok(!isMissing(new Error("404")));
  assert.equal(asProblem(new Refused(404, problem)), problem);
});

test("an answer that breaks off is told as one that never came", async () => {
  globalThis.document = { getElementById: () => null } as unknown as Document;
  const broken = new ReadableStream({ start: (answer) => answer.error(new TypeError("terminated")) });
  globalThis.fetch = async () => new Response(broken);
  await assert.rejects(call("GET", "/api/runs"), (error) => error instanceof Refused && error.status === 0);
});
