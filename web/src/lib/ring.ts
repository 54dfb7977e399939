/** The picture of a crowd: where everybody stands around the host, and how quickly things go. */
import type { Member, Swarm } from "./types.ts";

export interface Place {
  x: number;
  y: number;
  /** How large its dot may be. */
  radius: number;
}

export const MOST_SHOWN = 100;
const FIRST_RING = 20;

/** Places around the middle, inner rings first, outer rings with more room for more. */
export function ring(count: number, width: number, height: number): Place[] {
  const rings = ringSizes(count);
  const [wide, tall] = [width / 2 - 26, height / 2 - 26];
  const radius = count <= 12 ? 9 : count <= 40 ? 7 : 5;
  return rings.flatMap((size, n) => {
    const part = rings.length === 1 ? 0.86 : 0.5 + (0.5 * n) / (rings.length - 1);
    return Array.from({ length: size }, (_, at) => {
      const angle = (2 * Math.PI * (at + (n % 2) / 2)) / size - Math.PI / 2;
      return { x: width / 2 + wide * part * Math.cos(angle), y: height / 2 + tall * part * Math.sin(angle), radius };
    });
  });
}

export function ringSizes(count: number): number[] {
  const sizes: number[] = [];
  for (let left = count, room = FIRST_RING; left > 0; room += FIRST_RING) {
    sizes.push(Math.min(left, room));
    left -= room;
  }
  return sizes;
}

export interface Drawn {
  position: number;
  name: string;
}

/**
 * Who is drawn (worker 0 is in the host): of those here the ends of the busiest links first, as a link without an end
 * is not seen; then who has given most. The others are only counted. Of many the host names some by what they learn and
 * some by what they pass on: not the same ones.
 */
export function drawn(members: readonly Member[], swarm: Swarm | null, found: readonly Link[], most: number = MOST_SHOWN): Drawn[] {
  const here = new Map<number, Drawn & { samples: number }>();
  for (const { position, name, here: is } of swarm?.members ?? []) if (is) here.set(position, { position, name, samples: 0 });
  for (const { position, name, id, connected, samples } of members) {
    if (connected) here.set(position, { position, name: name || id, samples });
    else here.delete(position);
  }
  here.delete(0);
  const ends = new Set(busiest(found).flatMap(({ from, to }) => [from, to]));
  const rank = new Map([...ends].map((position, n) => [position, n]));
  const order = (position: number): number => rank.get(position) ?? ends.size;
  const chosen = [...here.values()].sort((a, b) => order(a.position) - order(b.position) || b.samples - a.samples).slice(0, most);
  return chosen.map(({ position, name }) => ({ position, name })).sort((a, b) => a.position - b.position);
}

export interface Link {
  /** Positions; 0 is the host. */
  from: number;
  to: number;
  kind: "data" | "training";
  bytes_per_s: number;
}

/** What has gone along every link so far; `at` in seconds. */
export interface Counted {
  at: number;
  bytes: Map<string, number>;
}

/** Rates are of the last so many seconds; … */
const WINDOW_S = 6;
/** … after so long without a word nothing goes any more. */
const SILENT_S = 5;

const key = (link: Omit<Link, "bytes_per_s">): string => `${link.kind} ${link.from} ${link.to}`;

/** Between the host (0) and everybody else. */
export function trained(members: readonly Member[], at: number): Counted {
  const bytes = new Map<string, number>();
  for (const member of members) {
    if (member.position === 0) continue; // worker 0 lives in the host
    bytes.set(key({ from: 0, to: member.position, kind: "training" }), member.bytes_sent);
    bytes.set(key({ from: member.position, to: 0, kind: "training" }), member.bytes_received);
  }
  return { at, bytes };
}

/** From member to member. */
export function spread(swarm: Swarm, at: number): Counted {
  const bytes = new Map<string, number>();
  for (const flow of swarm.flows) {
    if (flow.sender === 0) continue; // within what the host sends already
    bytes.set(key({ from: flow.sender, to: flow.receiver, kind: "data" }), flow.bytes);
  }
  return { at, bytes };
}

/** The last counts of one kind. */
export class Recent {
  #counts: Counted[] = [];

  /** After a rest an older one stays: what comes then is more than it had. */
  add(now: Counted): void {
    const young = this.#counts.findIndex((one) => now.at - one.at <= WINDOW_S);
    this.#counts = [...this.#counts.slice(young < 0 ? -1 : young), now];
  }

  links(at: number): Link[] {
    const last = this.#counts.at(-1);
    return last && at - last.at <= SILENT_S ? links(this.#counts) : [];
  }
}

export const busiest = (found: readonly Link[], most = 240): Link[] =>
  [...found].sort((a, b) => b.bytes_per_s - a.bytes_per_s).slice(0, most);

/**
 * What goes along the links, by counts one behind the other. A link counts from where it is first told of; one of data
 * is not told of before it carries any, so it began behind the count before.
 */
export function links(counts: readonly Counted[]): Link[] {
  const [last, found] = [counts.at(-1), [] as Link[]];
  for (const [name, bytes] of last?.bytes ?? []) {
    const [kind = "", from = "", to = ""] = name.split(" ");
    const known = counts.findIndex((one) => one.bytes.has(name));
    const first = counts[kind === "data" ? Math.max(0, known - 1) : known];
    if (!last || !first || first === last) continue;
    const more = bytes - (first.bytes.get(name) ?? 0);
    const seconds = Math.min(last.at - first.at, WINDOW_S);
    if (more > 0 && seconds > 0) {
      found.push({ kind: kind === "data" ? "data" : "training", from: Number(from), to: Number(to), bytes_per_s: more / seconds });
    }
  }
  return found;
}

/** Ways per second of a dot on a link: ten times the bytes, a step faster. */
export function pace(bytesPerSecond: number): number {
  if (bytesPerSecond <= 0) return 0;
  return Math.min(1.6, 0.1 + 0.2 * Math.max(0, Math.log10(bytesPerSecond / 100)));
}
