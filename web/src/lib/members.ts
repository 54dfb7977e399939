/** The table of volunteers: its order, and which rows of it are in sight. */
import type { Member } from "./types.ts";

export const COLUMNS = ["name", "state", "samples_per_s", "mean_staleness", "share", "times"] as const;
export type Column = (typeof COLUMNS)[number];
export interface Order {
  by: Column;
  down: boolean;
}

const WORDS: readonly Column[] = ["name", "state"];

/** Where a column is first sorted by: words from A, numbers from the largest. */
export const firstOrder = (by: Column): Order => ({ by, down: !WORDS.includes(by) });

export function nextOrder(order: Order, by: Column): Order {
  return order.by === by ? { by, down: !order.down } : firstOrder(by);
}

export function sorted(members: readonly Member[], order: Order): Member[] {
  const sign = order.down ? -1 : 1;
  return [...members].sort((a, b) => sign * compared(a, b, order.by) || a.position - b.position);
}

function compared(a: Member, b: Member, by: Column): number {
  if (by === "name") return a.name.localeCompare(b.name, "en", { numeric: true });
  if (by === "state") return Number(b.connected) - Number(a.connected) || a.state.localeCompare(b.state);
  if (by === "times") return a.times.compute_share - b.times.compute_share;
  return a[by] - b[by];
}

export interface Sight {
  first: number;
  /** One behind the last. */
  end: number;
}

/** Which of `count` rows can be seen, with a few more on both sides for quick fingers. */
export function inSight(scrolled: number, height: number, rowHeight: number, count: number, more = 6): Sight {
  const first = Math.max(0, Math.floor(scrolled / rowHeight) - more);
  const end = Math.min(count, Math.ceil((scrolled + height) / rowHeight) + more);
  return { first: Math.min(first, Math.max(0, end)), end };
}

export interface Row {
  member: Member;
  /** Which row of the whole table it is. */
  index: number;
}

/** The rows in sight, in the document's order: by position, however they are sorted. A row that moves in it loses the keys. */
export function placed(rows: readonly Member[], { first, end }: Sight): Row[] {
  const shown = rows.slice(first, end).map((member, n) => ({ member, index: first + n }));
  return shown.sort((a, b) => a.member.position - b.member.position);
}
