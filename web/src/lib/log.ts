/** A run's log: when its lines were noted, and which of two tellings of it goes further. */
import type { LogLine } from "./types.ts";

/** The time of day, with the date where that is not today's. `at`, `now`: seconds since 1970. */
export function clock(at: number, now: number = Date.now() / 1000): string {
  const [then, today] = [new Date(1000 * at), new Date(1000 * now)];
  const time = then.toLocaleTimeString("en-GB");
  if (then.toDateString() === today.toDateString()) return time;
  return `${then.toLocaleDateString("en-GB", { day: "numeric", month: "short", year: "numeric" })}, ${time}`;
}

/** The stream ends with the host, or with nobody looking: what was asked for may know more, and the other way round. */
export function further(one: LogLine[], other: LogLine[]): LogLine[] {
  return (other.at(-1)?.at ?? 0) > (one.at(-1)?.at ?? 0) ? other : one;
}
