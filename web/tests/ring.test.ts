import assert from "node:assert/strict";
import { test } from "node:test";
import { busiest, drawn, links, pace, Recent, ring, ringSizes, spread, trained, type Link } from "../src/lib/ring.ts";
import type { Member, Swarm } from "../src/lib/types.ts";

const member = (position: number, sent: number, received: number, connected = true): Member =>
  ({ position, name: `m${position}`, id: `id${position}`, connected, samples: position, bytes_sent: sent, bytes_received: received }) as Member;

test("everybody has a place on the picture, and nobody stands in another's", () => {
  for (const count of [0, 1, 7, 40, 100]) {
    const places = ring(count, 600, 360);
    assert.equal(places.length, count);
    for (const { x, y } of places) assert.ok(x >= 20 && x <= 580 && y >= 20 && y <= 340);
    for (const [n, a] of places.entries()) {
      for (const b of places.slice(n + 1)) assert.ok(Math.hypot(a.x - b.x, a.y - b.y) > 2 * a.radius);
    }
  }
});

test("rings grow outwards", () => {
  assert.deepEqual(ringSizes(70), [20, 40, 10]);
  assert.deepEqual(ringSizes(0), []);
});

test("who has given most of those here is drawn, in roster order", () => {
  const all = [member(0, 0, 0), member(1, 0, 0), member(2, 0, 0, false), { ...member(3, 0, 0), name: "" }, member(4, 0, 0)];
  assert.deepEqual(drawn(all, null, [], 2), [{ position: 3, name: "id3" }, { position: 4, name: "m4" }]);
});

test("the ends of the busiest links are drawn before others, also those of whom only the swarm tells", () => {
  const all = [member(1, 0, 0), member(2, 0, 0, false), member(3, 0, 0), member(4, 0, 0)];
  const passing = [[1, true], [2, true], [7, false], [8, true], [9, true]].map(([position, here]) => ({ position, name: `s${position}`, here }));
  const link = (from: number, to: number, bytes_per_s: number): Link => ({ from, to, kind: "data", bytes_per_s });
  const found = (links: Link[], most: number): string[] => drawn(all, { members: passing } as Swarm, links, most).map((one) => one.name);
  assert.deepEqual(found([link(9, 1, 5), link(0, 8, 50)], 2), ["s8", "s9"]);
  assert.deepEqual(found([link(9, 1, 5), link(0, 8, 50)], 4), ["m1", "m4", "s8", "s9"]);
  assert.deepEqual(found([link(2, 7, 9)], 9), ["m1", "m3", "m4", "s8", "s9"]); // who has gone is not
});

test("rates are what came between two counts", () => {
  const swarm = (bytes: number): Swarm => ({ flows: [{ sender: 1, receiver: 2, bytes }, { sender: 0, receiver: 1, bytes: 5 }] }) as Swarm;
  const before = trained([member(0, 1, 1), member(1, 100, 50)], 10);
  const after = trained([member(0, 9, 9), member(1, 300, 50), member(2, 7, 7)], 12);
  const training = { kind: "training", from: 0, to: 1, bytes_per_s: 100 } as const;
  assert.deepEqual(links([before, after]), [training]);
  assert.deepEqual(links([after, after]), []);
  const data = { kind: "data", from: 1, to: 2, bytes_per_s: 20 } as const;
  assert.deepEqual(links([spread(swarm(10), 10), spread(swarm(50), 12)]), [data]);
  assert.deepEqual(busiest([data, training]), [training, data]);
  assert.deepEqual(busiest([data, training], 1), [training]);
});

test("a link is at work for some seconds after the last that went along it", () => {
  const recent = new Recent();
  const sent = (bytes: number, at: number): void => recent.add(trained([member(1, bytes, 0)], at));
  assert.deepEqual(recent.links(0), []);
  sent(0, 0);
  sent(100, 2);
  sent(400, 4);
  assert.deepEqual(recent.links(4).map((one) => one.bytes_per_s), [100]);
  assert.deepEqual(recent.links(10), []); // nothing was heard since
  sent(400, 6);
  sent(400, 8);
  assert.deepEqual(recent.links(8).map((one) => one.bytes_per_s), [50]);
  sent(400, 12);
  assert.deepEqual(recent.links(12), []);
  recent.add(trained([member(1, 400, 0), member(2, 9e9, 9e9)], 12.5)); // told of only now
  assert.deepEqual(recent.links(12.5), []);
  sent(0, 13); // a host that was started anew counts anew
  assert.deepEqual(recent.links(13), []);
});

test("dots go faster where more goes, and stand where nothing does", () => {
  assert.equal(pace(0), 0);
  assert.ok(pace(1e3) < pace(1e5));
  assert.ok(pace(1e15) <= 1.6);
});

test("data that comes in one go, or after a rest, is seen", () => {
  const recent = new Recent();
  const said = (at: number, ...flows: [number, number, number][]): void =>
    recent.add(spread({ flows: flows.map(([sender, receiver, bytes]) => ({ sender, receiver, bytes })) } as Swarm, at));
  said(0);
  said(2, [1, 2, 60]);
  assert.deepEqual(recent.links(2), [{ kind: "data", from: 1, to: 2, bytes_per_s: 30 }]);
  said(100, [1, 2, 60], [2, 3, 120]); // nothing was said meanwhile, as nothing had changed
  assert.deepEqual(recent.links(100), [{ kind: "data", from: 2, to: 3, bytes_per_s: 20 }]);
  said(102, [1, 2, 60], [2, 3, 120], [3, 1, 10]);
  assert.deepEqual(recent.links(102).map((one) => one.from), [3]);
});
