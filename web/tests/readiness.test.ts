import assert from "node:assert/strict";
import { test } from "node:test";
import { missing, type Choices } from "../src/lib/readiness.ts";
import { t } from "../src/lib/texts.ts";

const words = t.host.publish;
const volunteers = (waits: number, maximum = 10) => ({ minimum: Math.max(1, waits), maximum, start: waits ? "all" : "any" });
const ready: Choices = {
  draft: { data: "digits", model: { kind: "mlp" }, task: null, volunteers: volunteers(0) },
  reach: "here", matchmaker: "", agree: false, helpers: 1,
};
const waiting = (waits: number, more: Partial<Choices> = {}, maximum = 10): string =>
  missing({ ...ready, draft: { ...ready.draft, volunteers: volunteers(waits, maximum) }, ...more });

test("what is lacking is said, the first of it first", () => {
  assert.equal(missing(ready), "");
  assert.equal(missing({ ...ready, draft: { ...ready.draft, data: "" }, helpers: 0 }), words.needData);
  assert.equal(missing({ ...ready, draft: { ...ready.draft, model: null, task: "model" } }), words.needTask);
  assert.equal(missing({ ...ready, helpers: 0 }), words.needHelper);
  assert.equal(missing({ ...ready, reach: "network" }), words.needAgree);
  assert.equal(missing({ ...ready, reach: "matchmaker", agree: true, matchmaker: " " }), words.needMatchmaker);
  assert.equal(missing({ ...ready, reach: "matchmaker", agree: true, matchmaker: "https://x.org" }), "");
});

test("who waits for more than can come would wait for ever", () => {
  assert.equal(waiting(1), "");
  assert.equal(waiting(2), words.needHelpers(2));
  assert.equal(waiting(2, { helpers: 2 }), "");
  assert.equal(waiting(2, { reach: "network", agree: true }), ""); // others may come
});

test("nobody waits for more than may take part", () => {
  assert.equal(waiting(5, { helpers: 8 }, 3), words.needRoom(5, 3));
  assert.equal(waiting(5, { reach: "network", agree: true }, 3), words.needRoom(5, 3));
  assert.equal(waiting(3, { helpers: 3 }, 3), "");
  assert.equal(waiting(0, { helpers: 2 }, 1), words.needPlaces(2, 1));
});
