import assert from "node:assert/strict";
import { test } from "node:test";
import { parse } from "../src/lib/routes.ts";

test("an address names a page, and a run", () => {
  assert.deepEqual(parse("#/runs"), { page: "runs", id: "" });
  assert.deepEqual(parse("#/run/20260301-a%2Fb"), { page: "run", id: "20260301-a/b" });
});

test("what nobody can read is no blank page", () => {
  assert.deepEqual(parse("#/run/%E0%A4%A"), { page: "run", id: "%E0%A4%A" });
  assert.deepEqual(parse("#/nowhere"), { page: "start", id: "" });
  assert.deepEqual(parse(""), { page: "start", id: "" });
});
