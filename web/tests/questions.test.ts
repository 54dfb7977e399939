import assert from "node:assert/strict";
import { test } from "node:test";
import { answered, asks, MOST_FAILURES, NOTHING, refused } from "../src/lib/questions.ts";

const [one, other] = [[1], [1]];

test("what is answered is asked again of another version, or of another drawing", () => {
  assert.ok(asks(NOTHING, one, "1"));
  const asked = answered(one, "1");
  assert.ok(!asks(asked, one, "1"));
  assert.ok(asks(asked, one, "2"));
  assert.ok(asks(asked, other, "1"));
});

test("what fails is not asked for ever", () => {
  let asked = NOTHING;
  let times = 0;
  for (; times < 100 && asks(asked, one, "1"); times += 1) asked = refused(asked, one, "1");
  assert.equal(times, MOST_FAILURES);
  assert.ok(asks(asked, one, "2"));
  assert.ok(asks(refused(asked, other, "1"), other, "1"));
});
