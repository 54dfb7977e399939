import assert from "node:assert/strict";
import { test } from "node:test";
import { byCause, ofHost, ofMatchmaker, unlisted } from "../src/lib/public.ts";
import type { JobPage, JobSummary } from "../src/lib/types.ts";

const PIN = "0123456789abcdef0123456789abcdef";
const ways = (told: Partial<JobPage>) => ({ code: null, local_code: "", link: "", matchmaker: null, ...told });

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
