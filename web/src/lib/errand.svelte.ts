/** Something long that the panel does for us in a process of its own: begun, followed, stopped. */
import { asProblem, call, get, type Problem } from "./api.ts";
import { live } from "./live.svelte.ts";
import { recall, remember } from "./tab.ts";
import type { Begun, Result, Task } from "./types.ts";

const LOOK_MS = 500;

export class Errand<T extends Result> {
  running = $state(false);
  stopped = $state(false);
  doing = $state("");
  progress = $state<number | null>(null);
  problem = $state.raw<Problem | null>(null);
  #id = "";
  #turn = 0;
  #abort = new AbortController();
  readonly #key: string;

  /** `name`: under which the tab remembers it, so that a reload goes on with it. */
  constructor(name: string) {
    this.#key = `crowdgrad-task-${name}`;
  }

  /** What was begun before a reload; null where nothing was, or the panel does not know it any more. */
  async again(): Promise<T | null> {
    const id = recall<string>(this.#key);
    if (!id || this.running) return null;
    try {
      await get<Task<T>>(`/api/tasks/${id}`);
    } catch {
      remember(this.#key, null);
      return null;
    }
    return this.running ? null : this.run(async () => ({ task: id }));
  }

  /** The result, or null where it failed, was stopped, or a later one took its place. */
  async run(begin: (signal: AbortSignal) => Promise<Begun>): Promise<T | null> {
    this.stop();
    const turn = ++this.#turn;
    this.#abort = new AbortController();
    this.running = true;
    this.stopped = false;
    this.problem = null;
    this.say("", null);
    try {
      const id = (await begin(this.#abort.signal)).task;
      if (turn !== this.#turn) {
        void call("DELETE", `/api/tasks/${id}`).catch(() => undefined);
        return null;
      }
      this.#id = id;
      remember(this.#key, id);
      for (;;) {
        const told = await look<T>(id);
        if (turn !== this.#turn) return null;
        this.say(told.doing, told.progress);
        if (told.state === "failed") this.problem = told.error ?? { code: "", message: told.doing, advice: "" };
        if (told.state === "stopped") this.stopped = true;
        if (told.state !== "running") return told.state === "done" ? told.result : null;
        await new Promise((done) => setTimeout(done, LOOK_MS));
        if (turn !== this.#turn) return null;
      }
    } catch (error) {
      if (turn === this.#turn) this.problem = asProblem(error);
      return null;
    } finally {
      if (turn === this.#turn) {
        this.running = false;
        this.#id = "";
        remember(this.#key, null);
      }
    }
  }

  say(doing: string, progress: number | null): void {
    this.doing = doing;
    this.progress = progress;
  }

  stop(): void {
    this.#turn += 1;
    this.#abort.abort();
    if (this.#id) void call("DELETE", `/api/tasks/${this.#id}`).catch(() => undefined);
    this.#id = "";
    remember(this.#key, null);
    this.stopped = this.running;
    this.running = false;
  }

  /** Stop, without a word of it. */
  forget(): void {
    this.stop();
    this.stopped = false;
    this.problem = null;
  }
}

/** What the stream has said last, where it goes; else ask. */
async function look<T extends Result>(id: string): Promise<Task<T>> {
  const heard = live.connected ? live.tasks[id] : undefined;
  return heard && heard.state === "running" ? (heard as Task<T>) : get<Task<T>>(`/api/tasks/${id}`);
}
