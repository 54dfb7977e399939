import assert from "node:assert/strict";
import { test } from "node:test";
import { byCause, command, joining, ofHost, ofMatchmaker, onlyHere, unlisted } from "../src/lib/public.ts";
import type { JobPage, JobSummary } from "../src/lib/types.ts";

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

const page = (told: Partial<JobPage>): JobPage => ({ ...ways({}), state: "running", paused: false, started_at: 1, members: [], curve: [], ...told }) as JobPage;
const listed = (told: Partial<JobSummary>): JobSummary =>
  ({ id: told.code, title: "", cause: "", description: "", code: "AAA-AAA", link: "", state: "running", presence: "present", volunteers: 0, minimum: 0, maximum: 2, ...told }) as JobSummary;

test("a job without a code shows none, and still says how to join", () => {
  const job = ofHost(page({ link: `crowdgrad://192.168.0.7:8701/?job=abc#${PIN}` }));
  assert.equal(job.code, "");
  assert.match(job.command, /^crowdgrad work '.*job=abc#/);
});

test("the matchmaker of a listed job is named", () => {
  const job = ofMatchmaker(listed({ link: "https://x.org/match/j/AAA-AAA" }));
  assert.equal(job.command, "crowdgrad work AAA-AAA --matchmaker https://x.org/match");
  assert.deepEqual([unlisted(job).standing, unlisted(job).open], ["unlisted", false]);
});

test("open jobs are found by every word, those with room first", () => {
  const jobs = [listed({ code: "A", cause: "Health", title: "bones", volunteers: 2 }), listed({ code: "B", cause: "health", title: "old bones" }), listed({ code: "C", state: "finished" })];
  assert.deepEqual(byCause(jobs).map((group) => group.jobs.map((job) => job.code)), [["B", "A"]]);
  assert.deepEqual(byCause(jobs, "BONES old").map((group) => group.jobs.map((job) => job.code)), [["B"]]);
});
