/** Paints the crowd: the host in the middle, everybody around, dots for what goes along the links. */
import { pace, type Link, type Place } from "./ring.ts";

export interface Colours {
  host: string;
  hostInk: string;
  member: string;
  training: string;
  data: string;
  line: string;
  ink: string;
}
export interface Actor {
  position: number;
  name: string;
  /** How much of its data it has, 0 to 1. */
  progress: number;
}
export interface Scene {
  width: number;
  height: number;
  host: string;
  actors: readonly Actor[];
  places: readonly Place[];
  links: readonly Link[];
  /** Who is pointed at; -1: nobody. */
  named: number;
}

const HOST_RADIUS = 20;
const MOST_NAMES = 14;

/** `ways`: how many ways each link's dot has gone, kept from picture to picture. Still: `moving` false. */
export function paint(on: CanvasRenderingContext2D, scene: Scene, colours: Colours, ways: Map<string, number>, moving: boolean): void {
  const { width, height } = scene;
  const middle: Place = { x: width / 2, y: height / 2, radius: HOST_RADIUS };
  const where = new Map<number, Place>([[0, middle]]);
  scene.actors.forEach((actor, n) => where.set(actor.position, scene.places[n] ?? middle));
  on.clearRect(0, 0, width, height);
  on.lineWidth = 1;
  on.strokeStyle = colours.line;
  for (const place of where.values()) stroke(on, middle, place);
  for (const link of scene.links) {
    const [from, to] = [where.get(link.from), where.get(link.to)];
    if (from && to) paintLink(on, link, from, to, colours[link.kind], moving ? (ways.get(linkKey(link)) ?? 0) : null);
  }
  scene.actors.forEach((actor, n) => paintActor(on, actor, scene.places[n] ?? middle, colours, scene, n));
  disc(on, middle, HOST_RADIUS, colours.host);
  on.fillStyle = colours.hostInk;
  on.font = "600 12px system-ui, sans-serif";
  on.textAlign = "center";
  on.textBaseline = "middle";
  on.fillText(scene.host, middle.x, middle.y);
}

export const linkKey = (link: Link): string => `${link.kind} ${link.from} ${link.to}`;

export function advance(links: readonly Link[], ways: Map<string, number>, seconds: number): void {
  for (const link of links) {
    const begun = ways.get(linkKey(link)) ?? ((link.from * 7 + link.to * 13) % 10) / 10; // not all in step
    ways.set(linkKey(link), (begun + pace(link.bytes_per_s) * seconds) % 1);
  }
}

function paintLink(on: CanvasRenderingContext2D, link: Link, from: Place, to: Place, colour: string, way: number | null): void {
  on.strokeStyle = colour;
  on.fillStyle = colour;
  on.globalAlpha = 0.35;
  on.lineWidth = way === null ? 1 + 2 * pace(link.bytes_per_s) : 1;
  if (link.kind === "data" || way === null) stroke(on, from, to);
  on.globalAlpha = 1;
  if (way === null) return;
  const [dx, dy] = [to.x - from.x, to.y - from.y];
  const long = Math.hypot(dx, dy) || 1;
  const [aside, up] = [(-dy / long) * 3, (dx / long) * 3]; // there and back on two sides of a line
  for (const more of [0, 0.5]) {
    const at = (way + more) % 1;
    disc(on, { x: from.x + dx * at + aside, y: from.y + dy * at + up, radius: 0 }, 2.5, colour);
  }
}

function paintActor(on: CanvasRenderingContext2D, actor: Actor, place: Place, colours: Colours, scene: Scene, n: number): void {
  disc(on, place, place.radius, colours.member);
  if (actor.progress < 1) {
    on.strokeStyle = colours.data;
    on.lineWidth = 3;
    on.beginPath();
    on.arc(place.x, place.y, place.radius + 3, -Math.PI / 2, -Math.PI / 2 + 2 * Math.PI * actor.progress);
    on.stroke();
  }
  if (scene.actors.length > MOST_NAMES && scene.named !== n) return;
  on.font = scene.named === n ? "600 12px system-ui, sans-serif" : "12px system-ui, sans-serif";
  on.textAlign = place.x < scene.width / 3 ? "left" : place.x > (2 * scene.width) / 3 ? "right" : "center";
  on.textBaseline = "middle";
  const text = actor.name.length > 22 ? `${actor.name.slice(0, 21)}…` : actor.name;
  const below = place.y < scene.height / 2 ? -1 : 1;
  on.fillStyle = colours.ink;
  on.fillText(text, place.x, place.y + below * (place.radius + 9));
}

function stroke(on: CanvasRenderingContext2D, from: Place, to: Place): void {
  on.beginPath();
  on.moveTo(from.x, from.y);
  on.lineTo(to.x, to.y);
  on.stroke();
}

function disc(on: CanvasRenderingContext2D, at: Place, radius: number, colour: string): void {
  on.fillStyle = colour;
  on.beginPath();
  on.arc(at.x, at.y, radius, 0, 2 * Math.PI);
  on.fill();
}
