/** What the page about lending decides: whether we lend, hours, limits, the journal's lines. */
import type { Child, Limits, WorkStatus } from "./types.ts";

/** `ending`: it has said its last word, and its process is not gone yet. */
export type Lending = "off" | "starting" | "on" | "ending";

/** Whether this machine lends now, by what the stream and its children say. */
export function lending(work: WorkStatus | null, children: readonly Child[]): Lending {
  const child = children.filter((one) => one.kind === "work").at(-1);
  if (child && (child.state === "over" || child.state === "failed")) return "off";
  if (work && work.state !== "over") return "on";
  if (!child) return "off";
  return work ? "ending" : "starting";
}

export interface Hours {
  from: string;
  to: string;
}

const HOURS = /^(\d{1,2})(?::([0-5]\d))?[-–](\d{1,2})(?::([0-5]\d))?$/;

/** `22:00-07:00` or `22-7`, as two times of the day; null: at any time. */
export function hoursOf(text: string): Hours | null {
  const found = HOURS.exec(text.replaceAll(" ", ""));
  if (!found) return null;
  const time = (hour = "0", minute = "00"): string => `${String(Number(hour) % 24).padStart(2, "0")}:${minute}`;
  return { from: time(found[1], found[2]), to: time(found[3], found[4]) };
}

const TIME = /^([01]\d|2[0-3]):[0-5]\d$/;

/** Why two times name no hours; empty: they do. */
export function badHours(hours: Hours): "" | "incomplete" | "same" {
  if (!TIME.test(hours.from) || !TIME.test(hours.to)) return "incomplete";
  return hours.from === hours.to ? "same" : "";
}

/** What the volunteer is told; null: these two times name no hours. */
export function spellHours(hours: Hours): string | null {
  return badHours(hours) ? null : `${hours.from}-${hours.to}`;
}

export function sameLimits(a: Limits, b: Limits): boolean {
  const plain = (limits: Limits): unknown[] => [
    limits.in_use.share, limits.in_use.threads, limits.idle.share, limits.idle.threads,
    limits.only_when_idle, limits.idle_after_s, limits.on_battery, limits.hours, limits.memory_mb,
    limits.cache_mb, limits.most_upload_mbps, limits.most_download_mbps,
  ];
  const other = plain(b);
  return plain(a).every((value, n) => value === other[n]);
}

const PREFIXES = ["", "k", "M", "G", "T", "P", "E", "Z", "Y"] as const;

/** Credit, as hosts count it: `1.23 PFLOP`. */
export function flop(amount: number): string {
  let left = amount;
  let step = 0;
  while (left >= 999.5 && step < PREFIXES.length - 1) {
    left /= 1000;
    step += 1;
  }
  return `${Number(left.toPrecision(3))} ${PREFIXES[step]}FLOP`;
}

/** Causes as people type them: between commas, each once. */
export function causesOf(text: string): string[] {
  const found = text.split(/[,;\n]/).map((one) => one.trim());
  return [...new Set(found.filter(Boolean))];
}
