import assert from "node:assert/strict";
import { beforeEach, test } from "node:test";
import { bearing, enter, key, known, protocols } from "../src/lib/entrance.ts";

const place = { hash: "", pathname: "/" };
let stored: Map<string, string>;
let asked: string[];

/** A panel that takes these, each for the key `K`. */
function panel(...takes: string[]): void {
  globalThis.fetch = async (_: unknown, request?: RequestInit) => {
    const given = (request?.headers as Record<string, string>)["Authorization"] ?? "";
    asked.push(given);
    const taken = takes.includes(given.replace("Bearer ", ""));
    return new Response(JSON.stringify(taken ? { key: "K" } : {}), { status: taken ? 200 : 401 });
  };
}

beforeEach(() => {
  stored = new Map();
  asked = [];
  place.hash = "";
  globalThis.document = { getElementById: () => null } as unknown as Document;
  globalThis.location = place as unknown as Location;
  globalThis.history = { replaceState: () => (place.hash = "") } as unknown as History;
  globalThis.localStorage = {
    getItem: (name: string) => stored.get(name) ?? null,
    setItem: (name: string, value: string) => stored.set(name, value),
  } as unknown as Storage;
});

test("what stands in the address becomes a key, and does not stay there", async () => {
  panel("T", "K");
  place.hash = "#enter=T";
  assert.ok(await enter());
  assert.equal(place.hash, "");
  assert.deepEqual(bearing(), { Authorization: "Bearer K" });
  assert.deepEqual(protocols(), ["crowdgrad", "key.K"]);
  assert.deepEqual(asked, ["Bearer T"]);
  assert.ok(await known());
});

test("a page that comes again has its key still, and asks nobody", async () => {
  panel();
  stored.set("crowdgrad.key", "K");
  place.hash = "#/runs";
  assert.ok(await enter());
  assert.equal(place.hash, "#/runs");
  assert.deepEqual(asked, []);
});

test("an address that served before takes no key away", async () => {
  panel("K");
  stored.set("crowdgrad.key", "K");
  place.hash = "#enter=spent";
  assert.ok(await enter());
  assert.equal(key(), "K");
});

test("a panel that was started anew knows nobody; one that does not answer may", async () => {
  stored.set("crowdgrad.key", "old");
  panel("T");
  assert.equal(await known(), false);
  globalThis.fetch = async () => Promise.reject(new TypeError("no answer"));
  assert.equal(await known(), true);
});

test("where nothing can be kept, the key lasts as long as the page", async () => {
  panel("T");
  const forbidden = (): never => {
    throw new Error("SecurityError");
  };
  globalThis.localStorage = { getItem: forbidden, setItem: forbidden } as unknown as Storage;
  place.hash = "#enter=T";
  assert.ok(await enter());
  assert.equal(key(), "K");
});

test("public pages say no key, whoever's lies there", async () => {
  stored.set("crowdgrad.key", "K");
  const told = { textContent: JSON.stringify({ serves: "matchmaker", version: "", page: "front" }) };
  globalThis.document = { getElementById: () => told } as unknown as Document;
  assert.deepEqual(bearing(), {});
});
