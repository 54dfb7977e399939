/** A job as everybody may see it, told by its host (`/job.json`) or by a matchmaker (`/v1/jobs`). */
import { command, joining } from "./joining.ts";
import type { Better, Helper, JobPage, JobSummary } from "./types.ts";

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
  better: Better;
  best: string;
  samples: number;
  samples_per_s: number;
  eta_s: number | null;
  took_part: number;
  helpers: Helper[];
  curve: { at_s: number; value: number }[];
}

const OVER: readonly string[] = ["finished", "stopped", "failed"];
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
      better: told.better,
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

/** Contact as a link, where it plainly is one. */
export function contactLink(contact: string): string {
  if (/^https?:\/\/[^\s"'<>]+$/.test(contact)) return contact;
  return /^[^\s@"'<>]+@[^\s@"'<>]+\.[^\s@"'<>]+$/.test(contact) ? `mailto:${contact}` : "";
}
