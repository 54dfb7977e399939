/**
 * The one event stream: the last of everything the panel has said, as state that pages read.
 * It comes back by itself, after a restarted server and after a laptop's sleep.
 */
import type { HostStatus, LogLine, PanelState, Swarm, Task, WorkStatus } from "./types.ts";

const AGAIN_MS = [500, 1000, 2000, 4000] as const;
const MOST_LINES = 2000;

class Live {
  connected = $state(false);
  /** Whether we have ever been connected: only then is a gap worth a word. */
  known = $state(false);
  panel = $state<PanelState>({ children: [] });
  status = $state.raw<HostStatus | null>(null);
  swarm = $state.raw<Swarm | null>(null);
  work = $state.raw<WorkStatus | null>(null);
  lines = $state.raw<LogLine[]>([]);
  tasks = $state<Record<string, Task>>({});
  run = "";

  #source: EventSource | null = null;
  #tries = 0;
  #timer = 0;

  /** Follow this run, too; empty: none. */
  follow(run: string): void {
    if (this.#source && run === this.run) return;
    if (run !== this.run) {
      this.status = null;
      this.swarm = null;
      this.lines = [];
    }
    this.run = run;
    this.#open();
  }

  #open(): void {
    window.clearTimeout(this.#timer);
    this.#source?.close();
    const query = this.run ? `?run=${encodeURIComponent(this.run)}` : "";
    const source = new EventSource(`/api/events${query}`);
    this.#source = source;
    const hear = <T>(name: string, take: (told: T) => void): void => {
      source.addEventListener(name, (event) => take(JSON.parse((event as MessageEvent<string>).data) as T));
    };
    hear<unknown>("hello", () => {
      this.connected = this.known = true;
      this.#tries = 0;
    });
    hear<PanelState>("panel", (told) => (this.panel = told));
    hear<HostStatus>("status", (told) => (this.status = told));
    hear<Swarm>("swarm", (told) => (this.swarm = told));
    hear<WorkStatus | null>("work", (told) => (this.work = told));
    hear<Task>("task", (told) => (this.tasks[told.id] = told));
    hear<{ lines: LogLine[] }>("log", (told) => this.#add(told.lines));
    source.onerror = () => {
      this.connected = false;
      source.close();
      const wait = AGAIN_MS[Math.min(this.#tries++, AGAIN_MS.length - 1)] ?? 4000;
      this.#timer = window.setTimeout(() => this.#open(), wait);
    };
  }

  #add(lines: LogLine[]): void {
    const last = this.lines.at(-1)?.n ?? -1;
    const fresh = lines.filter((line) => line.n > last);
    const begun = lines.length > 0 && (lines[0]?.n ?? 0) <= 0 && last > 0 && fresh.length === 0;
    const kept = begun ? lines : [...this.lines, ...fresh]; // a restarted host counts anew
    this.lines = kept.slice(-MOST_LINES);
  }
}

export const live = new Live();
