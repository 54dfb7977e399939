/**
 * The one event stream: the last of everything the panel has said, as state that pages read.
 * It comes back by itself, after a restarted server and after a laptop's sleep; a page that nobody
 * sees lets it go.
 */
import { known, protocols } from "./entrance.ts";
import type { Heard, HostStatus, LogLine, PanelState, Swarm, Task, WorkStatus } from "./types.ts";

const AGAIN_MS = [500, 1000, 2000, 4000] as const;
/** The panel says something every 15 seconds: after so long without a word it is not there. */
const SILENCE_MS = 40_000;
const HIDDEN_MS = 10_000;
const MOST_LINES = 2000;

type Message = { [Name in keyof Heard]: { event: Name; data: Heard[Name] } }[keyof Heard];

class Live {
  connected = $state(false);
  /** Whether the stream broke although somebody looks: that is worth a word. */
  lost = $state(false);
  /** Whether the panel is there and does not know this browser: it was started anew. */
  stranger = $state(false);
  /** How often the panel has told everything anew: what it does not know then, it has not. */
  lives = $state(0);
  panel = $state<PanelState>({ children: [] });
  status = $state.raw<HostStatus | null>(null);
  swarm = $state.raw<Swarm | null>(null);
  /** What this machine does for others; null: nothing, undefined: nothing was heard yet. */
  work = $state.raw<WorkStatus | null | undefined>(undefined);
  /** What it said last, also after it has ended. */
  worked = $state.raw<WorkStatus | null>(null);
  lines = $state.raw<LogLine[]>([]);
  tasks = $state<Record<string, Task>>({});
  run = "";

  #socket: WebSocket | null = null;
  #fresh = false;
  #tries = 0;
  #again = 0;
  #silence = 0;
  #hidden = 0;

  /** Follow this run, too; empty: none. */
  follow(run: string): void {
    if (this.#socket && run === this.run) return;
    if (run !== this.run) {
      this.status = null;
      this.swarm = null;
      this.lines = [];
    }
    this.run = run;
    this.#open();
    this.#seen(); // a tab may be opened in the background
    document.onvisibilitychange = () => this.#seen();
  }

  #seen(): void {
    window.clearTimeout(this.#hidden);
    if (document.hidden) this.#hidden = window.setTimeout(() => this.#close(), HIDDEN_MS);
    else if (!this.#socket) this.#open();
  }

  #open(): void {
    this.#close();
    const query = this.run ? `?run=${encodeURIComponent(this.run)}` : "";
    const socket = new WebSocket(`ws${location.origin.slice(4)}/api/events${query}`, protocols());
    this.#socket = socket;
    socket.onmessage = (event: MessageEvent<string>) => {
      this.#watch();
      this.#hear(JSON.parse(event.data) as Message);
    };
    socket.onclose = () => this.#broke();
    this.#watch();
  }

  #close(): void {
    window.clearTimeout(this.#again);
    window.clearTimeout(this.#silence);
    const socket = this.#socket;
    if (socket) {
      socket.onclose = socket.onmessage = null;
      if (socket.readyState === WebSocket.CONNECTING) socket.onopen = () => socket.close(); // browsers complain else
      else socket.close();
    }
    this.#socket = null;
    this.connected = false;
  }

  #watch(): void {
    window.clearTimeout(this.#silence);
    this.#silence = window.setTimeout(() => this.#broke(), SILENCE_MS);
  }

  #broke(): void {
    this.#close();
    this.lost = true;
    if (document.hidden) return; // it is opened when somebody looks
    if (this.#tries > 0) void this.#ask();
    const wait = AGAIN_MS[Math.min(this.#tries++, AGAIN_MS.length - 1)] ?? 4000;
    this.#again = window.setTimeout(() => this.#open(), wait);
  }

  /** A WebSocket that is refused does not say why. */
  async #ask(): Promise<void> {
    this.stranger = !(await known());
  }

  #hear(told: Message): void {
    switch (told.event) {
      case "hello":
        this.connected = this.#fresh = true;
        this.lost = this.stranger = false;
        this.#tries = 0;
        break;
      case "panel":
        this.panel = told.data;
        if (this.#fresh) this.lives += 1;
        this.#fresh = false;
        break;
      case "status":
        this.status = told.data;
        break;
      case "swarm":
        this.swarm = told.data;
        break;
      case "work":
        this.work = told.data;
        this.worked = told.data ?? this.worked;
        break;
      case "task":
        this.tasks[told.data.id] = told.data;
        break;
      case "log":
        this.lines = [...(told.data.anew ? [] : this.lines), ...told.data.lines].slice(-MOST_LINES);
        break;
      case "here":
    }
  }
}

export const live = new Live();
