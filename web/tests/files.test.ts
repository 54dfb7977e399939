import assert from "node:assert/strict";
import { test } from "node:test";
import { named } from "../src/lib/files.ts";

const chosen = (path: string): File => ({ name: path.split("/").at(-1), webkitRelativePath: path.includes("/") ? path : "" }) as File;

test("files have their names within the chosen folder; hidden ones are left out", () => {
  const paths = ["a.csv", "set/cat/1.png", "set/.DS_Store", "set/.git/config", ".hidden", "set/a.b/2.png"];
  assert.deepEqual(named(paths.map(chosen)).map((one) => one.name), ["a.csv", "set/cat/1.png", "set/a.b/2.png"]);
});
