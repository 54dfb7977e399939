/** How one comes to a job: what is typed, and whether anybody from elsewhere can. */
import type { JobPage } from "./types.ts";

/** What can be pasted into a terminal: signs that are seen, and no quote that would end ours. */
const SAYABLE = /^[!-&(-~]+$/;
const PLAIN = /^[A-Za-z0-9@%+=:,./_-]+$/;
const quoted = (word: string): string => (PLAIN.test(word) ? word : `'${word}'`);

/** What a volunteer types; without a target: to help anybody. Empty where it cannot be said. */
export function command(target: string, matchmaker = ""): string {
  if (target && !SAYABLE.test(target)) return "";
  const where = SAYABLE.test(matchmaker) ? `--matchmaker ${quoted(matchmaker)}` : "";
  return ["crowdgrad work", target && quoted(target), where].filter(Boolean).join(" ");
}

type Ways = Pick<JobPage, "code" | "local_code" | "link" | "matchmaker">;

/** As `crowdgrad host` says it, see crowdgrad/cli/joining.py: what works from furthest away. */
export function joining({ code, local_code, link, matchmaker }: Ways): string {
  if (code) return command(code, (matchmaker ?? "").replace(/\/$/, ""));
  const target = link || local_code;
  return target ? command(target) : "";
}

/** Whether nobody from another machine can come. */
export function onlyHere({ code, local_code, link }: Ways): boolean {
  if (code || local_code || !link.startsWith("crowdgrad://")) return false;
  const [way = "", query = ""] = link.slice("crowdgrad://".length).split("#")[0]?.split("/?") ?? [];
  const ways = [way.replace(/\/$/, ""), ...new URLSearchParams(query).getAll("also")].filter(Boolean);
  return ways.length > 0 && ways.every((one) => /^(127\.[0-9.]+|\[::1\]|localhost):[0-9]+$/i.test(one));
}
