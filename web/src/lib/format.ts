/** Numbers and times for people: always with their unit. */
import { clock } from "./clock.ts";
import { t } from "./texts.ts";
import type { Better } from "./types.ts";

const WHOLE = new Intl.NumberFormat("en", { maximumFractionDigits: 0 });
const TENTHS = new Intl.NumberFormat("en", { minimumFractionDigits: 1, maximumFractionDigits: 1 });
const ROUGH = new Intl.NumberFormat("en", { maximumSignificantDigits: 3 });
const LARGE = new Intl.NumberFormat("en", { notation: "compact", compactDisplay: "long", maximumFractionDigits: 1 });

export const whole = (value: number): string => WHOLE.format(value);
/** To the last digit as long as people can read that: 0.4, 1,437, 172,000, 25.9 million. */
export function short(value: number): string {
  if (value >= 999_500) return LARGE.format(value);
  return value < 100_000 && (value >= 10 || Number.isInteger(value)) ? whole(value) : ROUGH.format(value);
}
export const percent = (share: number, digits = 0): string => `${(100 * share).toFixed(digits)} %`;

export const capital = (words: string): string => words.charAt(0).toUpperCase() + words.slice(1);
/** One digit behind the point: epochs done. */
export const tenths = (value: number): string => TENTHS.format(value);

const BYTE_UNITS = ["B", "kB", "MB", "GB", "TB"] as const;

export function bytes(value: number): string {
  let left = value;
  let unit = 0;
  while (left >= 1000 && unit < BYTE_UNITS.length - 1) {
    left /= 1000;
    unit += 1;
  }
  return `${left.toFixed(unit === 0 || left >= 100 ? 0 : 1)} ${BYTE_UNITS[unit]}`;
}

export const rate = (perSecond: number): string => `${bytes(perSecond)}/s`;

export function duration(seconds: number): string {
  const s = Math.max(0, Math.round(seconds));
  if (s < 60) return `${s} s`;
  if (s < 3600) return `${Math.floor(s / 60)} min ${s % 60 ? `${s % 60} s` : ""}`.trim();
  const minutes = Math.round(s / 60);
  if (minutes < 48 * 60) return `${Math.floor(minutes / 60)} h ${minutes % 60} min`;
  return t.time.days(Math.round(minutes / 1440));
}

/** How long ago, or how far ahead, seconds since 1970 are. */
export function relative(at: number, now: number = clock()): string {
  const away = at - now;
  if (Math.abs(away) < 5) return t.time.now;
  return away < 0 ? t.time.ago(duration(-away)) : t.time.ahead(duration(away));
}

const MOMENT = new Intl.DateTimeFormat("en", { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit", hourCycle: "h23" });

/** When it was, in this machine's time, where it must not change as time goes by. */
export const moment = (at: number): string => MOMENT.format(1000 * at);

/** Without the zeros behind a point that say nothing. */
export const trimmed = (spelled: string): string =>
  spelled.replace(/\.(\d*?)0+(?=\D|$)/, (_, kept: string) => (kept ? `.${kept}` : ""));

/** As hosts spell it (`spell_score` in crowdgrad/host/telling/status.py): parts of a whole in per cent. */
export function score(value: number | null | undefined, metric: string | null, better: Better): string {
  if (value === null || value === undefined) return "–";
  const share = better === "higher" && /accuracy|top|precision|recall|share|rate|f1/i.test(metric ?? "");
  if (share && value >= 0 && value <= 1) return percent(value, 2);
  return Math.abs(value) < 1000 ? value.toFixed(4) : value.toPrecision(4);
}
