import assert from "node:assert/strict";
import { test } from "node:test";
import { command, joining, onlyHere } from "../src/lib/joining.ts";
import type { JobPage } from "../src/lib/types.ts";

const PIN = "0123456789abcdef0123456789abcdef";
const ways = (told: Partial<JobPage>) => ({ code: null, local_code: "", link: "", matchmaker: null, ...told });

test("a code is typed with its matchmaker", () => {
  const published = ways({ code: "K7Q-2MP", link: `https://match.example.org/j/K7Q-2MP#${PIN}`, matchmaker: "https://match.example.org/" });
  assert.equal(joining(published), "crowdgrad work K7Q-2MP --matchmaker https://match.example.org");
});

test("a link keeps what names the job, in quotes", () => {
  const link = `crowdgrad://192.168.0.7:8701/?also=relay:relay.example.org:8702&job=abc#${PIN}`;
  assert.equal(joining(ways({ link, local_code: "AB-CD" })), `crowdgrad work '${link}'`);
  assert.equal(joining(ways({ local_code: "AB-CD" })), "crowdgrad work AB-CD");
});

test("what would end the quotes is never offered to paste", () => {
  assert.equal(command("x';rm -rf ~;'"), "");
  assert.equal(command("two words"), "");
  assert.equal(command("$(rm)"), "crowdgrad work '$(rm)'");
  assert.equal(command("AB-CD", "https://x.org/'"), "crowdgrad work AB-CD");
  assert.equal(joining(ways({})), "");
});

test("whoever names no job helps anybody", () => {
  assert.equal(command("", "http://[::1]:8700"), "crowdgrad work --matchmaker 'http://[::1]:8700'");
});

test("a host that only this machine reaches invites nobody", () => {
  assert.ok(onlyHere(ways({ link: `crowdgrad://127.0.0.1:8701/?job=abc#${PIN}` })));
  assert.ok(onlyHere(ways({ link: `crowdgrad://[::1]:8701/#${PIN}` })));
  assert.ok(!onlyHere(ways({ link: `crowdgrad://192.168.0.7:8701/?job=abc#${PIN}` })));
  assert.ok(!onlyHere(ways({ link: `crowdgrad://127.0.0.1:8701/?also=relay:relay.example.org:8702&job=abc#${PIN}` })));
  assert.ok(!onlyHere(ways({ link: `crowdgrad:///?also=relay:relay.example.org:8702#${PIN}` })));
  assert.ok(!onlyHere(ways({ link: `crowdgrad://127.0.0.1:8701/#${PIN}`, local_code: "AB-CD" })));
  assert.ok(!onlyHere(ways({})));
});
