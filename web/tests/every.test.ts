import assert from "node:assert/strict";
import { test } from "node:test";
import { inTurn } from "../src/lib/every.ts";

test("what is asked for meanwhile is done once more, and never two at once", async () => {
  let [begun, at] = [0, 0];
  const answers: (() => void)[] = [];
  const ask = inTurn(async () => {
    begun += 1;
    at += 1;
    assert.equal(at, 1);
    await new Promise<void>((answer) => answers.push(answer));
    at -= 1;
  });
  const first = ask();
  await Promise.all([ask(), ask(), ask()]);
  assert.equal(begun, 1);
  answers.shift()?.();
  await new Promise((done) => setTimeout(done));
  assert.equal(begun, 2);
  answers.shift()?.();
  await first;
  assert.equal(begun, 2);
});

test("after a failure it can be asked again", async () => {
  let fails = true;
  const ask = inTurn(async () => {
    if (fails) throw new Error("no");
  });
  await assert.rejects(ask());
  fails = false;
  await ask();
});
