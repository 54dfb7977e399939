/** A job as everybody may see it, told by its host (`/job.json`) or by a matchmaker (`/v1/jobs`). */
import type { Helper, JobPage, JobSummary } from "./types.ts";

export type Standing = "waiting" | "running" | "full" | "paused" | "away" | "quiet" | "finished" | "stopped" | "failed" | "unlisted";
export interface Open {
  title: string;
  cause: string;
  description: string;
  contact: string;
  /** Fingerprint of the host's key. */
  host: string;
  /** What cannot be told is empty: the code … */
  code: string;
  link: string;
  qr: string;
  /** … and what a volunteer types. */
  command: string;
  standing: Standing;
  reason: string;
  /** Whether it still takes help. */
  open: boolean;
  here: number;
  minimum: number;
  maximum: number | null;
  since: number | null;
  /** How much of it is done; null: nobody has said. */
  progress: number | null;
  /** What only the host knows. */
  training: Training | null;
}
export interface Training {
  progress: number;
  epochs_done: number;
  epochs: number;
  watched: string;
  best: string;
  samples: number;
  samples_per_s: number;
  eta_s: number | null;
  took_part: number;
  helpers: Helper[];
  curve: { at_s: number; value: number }[];
}

const OVER: readonly string[] = ["finished", "stopped", "failed"];
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

export function ofHost(told: JobPage): Open {
  const over = OVER.includes(told.state);
  const paused: Standing = told.paused ? "paused" : told.state === "running" ? "running" : "waiting";
  return {
    ...told,
    code: told.code ?? told.local_code,
    qr: told.link ? "/qr.svg" : "",
    command: joining(told),
    standing: over ? (told.state as Standing) : paused,
    open: !over,
    minimum: 0,
    maximum: null,
    since: told.started_at || null,
    training: {
      progress: told.progress,
      epochs_done: told.epochs_done,
      epochs: told.epochs,
      watched: told.watched,
      best: told.best,
      samples: told.samples,
      samples_per_s: told.samples_per_s,
      eta_s: told.eta_s,
      took_part: told.took_part,
      helpers: [...told.members].sort((a, b) => Number(b.connected) - Number(a.connected) || b.samples - a.samples),
      curve: told.curve.filter((point): point is { at_s: number; value: number } => point.value !== null),
    },
  };
}

export function ofMatchmaker(job: JobSummary): Open {
  const tail = `/j/${job.code}`;
  const origin = job.link.endsWith(tail) ? job.link.slice(0, -tail.length) : "";
  return {
    title: job.title,
    cause: job.cause,
    description: job.description,
    contact: job.contact,
    host: job.key,
    code: job.code,
    link: job.link,
    qr: `/j/${encodeURIComponent(job.code)}/qr.svg`,
    command: command(job.code, origin),
    standing: standing(job),
    reason: "",
    open: !OVER.includes(job.state),
    here: job.volunteers,
    minimum: job.minimum,
    maximum: job.maximum,
    since: job.published_at || null,
    progress: job.progress,
    training: null,
  };
}

/** It was there, and the matchmaker does not know it any more. */
export const unlisted = (job: Open): Open => ({ ...job, standing: "unlisted", open: false });

export function standing(job: JobSummary): Standing {
  if (OVER.includes(job.state)) return job.state as Standing;
  if (job.presence === "gone") return "away";
  if (job.presence === "suspect") return "quiet";
  if (job.volunteers >= job.maximum) return "full";
  return job.state === "running" ? "running" : "waiting";
}

export interface Group {
  cause: string;
  jobs: JobSummary[];
}

/** Open jobs that hold every word of `wanted`, by cause: those with room first, no cause last. */
export function byCause(jobs: readonly JobSummary[], wanted = ""): Group[] {
  const words = wanted.toLowerCase().split(/\s+/).filter(Boolean);
  const groups = new Map<string, Group>();
  for (const job of jobs) {
    if (OVER.includes(job.state) || job.presence === "gone") continue;
    const text = `${job.title} ${job.cause} ${job.description} ${job.code}`.toLowerCase();
    if (!words.every((word) => text.includes(word))) continue;
    const key = job.cause.trim().toLowerCase();
    const group = groups.get(key) ?? { cause: job.cause.trim(), jobs: [] };
    group.jobs.push(job);
    groups.set(key, group);
  }
  for (const group of groups.values()) {
    group.jobs.sort((a, b) => Number(a.volunteers >= a.maximum) - Number(b.volunteers >= b.maximum));
  }
  return [...groups.values()].sort(
    (a, b) => Number(!a.cause) - Number(!b.cause) || b.jobs.length - a.jobs.length || a.cause.localeCompare(b.cause),
  );
}

/** Points of a polyline within `width` × `height`, `pad` from every edge. */
export function spark(curve: readonly { at_s: number; value: number }[], width: number, height: number, pad = 4): string {
  if (curve.length === 0) return "";
  const times = curve.map((point) => point.at_s);
  const values = curve.map((point) => point.value);
  const scale = (all: number[], size: number) => {
    const least = Math.min(...all);
    const span = Math.max(...all) - least;
    return (value: number): number => (span === 0 ? size / 2 : pad + ((value - least) / span) * (size - 2 * pad));
  };
  const x = scale(times, width);
  const y = scale(values, height);
  return curve.map((point) => `${x(point.at_s).toFixed(1)},${(height - y(point.value)).toFixed(1)}`).join(" ");
}

/** Contact as a link, where it plainly is one. */
export function contactLink(contact: string): string {
  if (/^https?:\/\/[^\s"'<>]+$/.test(contact)) return contact;
  return /^[^\s@"'<>]+@[^\s@"'<>]+\.[^\s@"'<>]+$/.test(contact) ? `mailto:${contact}` : "";
}
