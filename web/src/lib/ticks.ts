/** Marks along an axis of time: at round times, and spelled to the last digit, so that no two read the same. */
import { t } from "./texts.ts";

const [MINUTE, HOUR, DAY] = [60, 3600, 86_400];

/** How far apart marks may be, in seconds. Less than one is for who looks closely at a short run. */
export const TIME_STEPS: number[] = [
  0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 30,
  ...[1, 2, 5, 10, 30].map((minutes) => minutes * MINUTE),
  ...[1, 2, 4, 12].map((hours) => hours * HOUR),
  ...[1, 2, 5, 10, 20, 50, 100].map((days) => days * DAY),
];

const UNITS = [1, MINUTE, HOUR, DAY];
const [ONE_WORD, EACH_FURTHER] = [70, 25];

/** The pixels a mark takes on an axis that is so long: from the largest unit of its end to the smallest of its steps. */
export function markRoom(from: number, to: number, long: number): number {
  const [largest, smallest] = [to, (ONE_WORD * (to - from)) / long].map((time) => Math.max(0, UNITS.findLastIndex((unit) => unit <= time)));
  return ONE_WORD + EACH_FURTHER * ((largest ?? 0) - (smallest ?? 0));
}

/** Unlike `duration`, which says no more than people want to know of one time alone. */
export function spellMark(seconds: number): string {
  const thousandths = Math.round(1000 * seconds);
  const whole = Math.floor(thousandths / 1000);
  const days = Math.floor(whole / DAY);
  const parts = [
    days ? t.time.days(days) : "",
    ...([["h", Math.floor(whole / HOUR) % 24], ["min", Math.floor(whole / MINUTE) % 60], ["s", (thousandths % (1000 * MINUTE)) / 1000]] as const).map(
      ([unit, value]) => (value ? `${value} ${unit}` : ""),
    ),
  ];
  return parts.filter(Boolean).join(" ") || "0 s";
}
