/** What is known of one run: by the stream, by the list of runs, and by what its host is asked for. */
import { untrack } from "svelte";
import { asProblem, get, type Problem } from "./api.ts";
import { every, inTurn } from "./every.ts";
import { live } from "./live.svelte.ts";
import { further } from "./log.ts";
import { restarts } from "./restarts.svelte.ts";
import { isOver, stateNow } from "./running.ts";
import { answered, asks, failed, givenUp, UNSAMPLED } from "./sampling.ts";
import { grown } from "./series.ts";
import type { Better, History, HostStatus, LogLine, RunSamples, RunSeen, Swarm } from "./types.ts";

const RUNS_S = 10;
const SAMPLES_S = 4;
const CROWD_S = 3;

/** How far something that was asked for has come; `none`: it is over, and there is no more. */
export type Told = "asking" | "told" | "failed" | "none";

export class Watching {
  readonly id: string;
  /** All runs, to find it and to compare it with. */
  runs = $state.raw<RunSeen[] | null>(null);
  problem = $state.raw<Problem | null>(null);
  history = $state.raw<History>({ evaluations: [], training: [] });
  samples = $state.raw<RunSamples | null>(null);
  #recalled = $state<Exclude<Told, "none">>("asking");
  #sampled = $state.raw(UNSAMPLED);
  #unsampled = $state.raw<Problem | null>(null);
  #everybody = $state.raw<HostStatus | null>(null);
  #spread = $state.raw<Swarm | null>(null);
  #earlier = $state.raw<LogLine[]>([]);
  /** Whether another page is shown now: nothing here is worked out any more. */
  #left = false;

  readonly seen = $derived.by(() => this.runs?.find((run) => run.id === this.id) ?? null);
  readonly child = $derived.by(
    () => live.panel.children.findLast((one) => one.id === this.id || one.run === this.id || one.id === restarts.child(this.id)) ?? null,
  );
  readonly status = $derived(live.status);
  readonly begins = $derived(this.child?.state === "starting" && !this.seen?.alive);
  readonly failed = $derived(this.child?.state === "failed" ? this.child.error : null);
  readonly now = $derived(this.begins ? "starting" : this.failed && !this.seen && !this.status ? "failed" : stateNow(this.status, this.seen));
  readonly over = $derived(isOver(this.now));
  readonly going = $derived(!this.over && !this.begins && (this.status !== null || this.seen?.alive === true));
  readonly trains = $derived(this.going && this.now === "running");
  readonly title = $derived(this.status?.title || this.seen?.title || "");
  readonly metric = $derived(this.status?.metric ?? (this.seen && this.seen.watched !== "loss" ? this.seen.watched : null));
  readonly better = $derived<Better>(this.status?.better ?? this.seen?.better ?? "lower");
  readonly crowd = $derived(this.#everybody && this.status && this.status.others.members > 0 ? this.#everybody : this.status);
  readonly swarm = $derived(live.swarm ?? this.#spread);
  readonly lines = $derived(further(live.lines, this.#earlier));
  readonly recalled = $derived<Told>(this.begins ? "told" : this.over && this.#recalled === "told" ? "none" : this.#recalled);
  readonly #course = $derived({ begins: this.begins, trains: this.trains, settled: this.over && this.seen?.alive !== true });
  /** Why nobody asks for samples any more. */
  readonly unsampled = $derived(givenUp(this.#course, this.#sampled) ? this.#unsampled : null);

  readonly look = inTurn(async () => {
    try {
      this.runs = await get<RunSeen[]>("/api/runs");
      this.problem = null;
    } catch (error) {
      this.problem = asProblem(error);
    }
  });

  /** While the component that makes it is shown. */
  constructor(id: string) {
    this.id = id;
    $effect(() => () => {
      this.#left = true;
    });
    $effect(() => every(RUNS_S, this.look));
    const told = $derived(`${this.child?.state} ${this.status?.phase}`);
    $effect(() => {
      void told;
      untrack(() => void this.look());
    });
    $effect(() => {
      void live.lives; // what was said while nobody listened, the stream does not say again
      if (this.going || this.over) untrack(() => void this.#recall());
    });
    $effect(() => {
      const { status } = this;
      if (status) this.history = grown(untrack(() => this.history), status);
    });
    const sampling = $derived(asks(this.#course, this.#sampled));
    $effect(() => (sampling ? every(SAMPLES_S, () => this.#sample()) : undefined));
    const many = $derived((this.status?.others.members ?? 0) > 0);
    $effect(() => {
      if (!many) return undefined;
      const ask = async (): Promise<void> => void (await this.#ask<HostStatus>("status?members=all", (found) => (this.#everybody = found)));
      if (this.going) return every(CROWD_S, ask);
      untrack(() => void ask()); // once: who took part does not change any more
      return undefined;
    });
  }

  /** Ask for samples again, after it was given up. */
  sampleAgain(): void {
    this.#sampled = { ...this.#sampled, tries: 0 };
  }

  /** Whether it was told; what a host cannot say now stays as it was. */
  async #ask<T>(path: string, take: (told: T) => void): Promise<boolean> {
    try {
      const found = await get<T>(`/api/runs/${encodeURIComponent(this.id)}/${path}`);
      if (this.#left) return false;
      take(found);
      return true;
    } catch {
      return false; // it has ended, or does not know
    }
  }

  async #recall(): Promise<void> {
    void this.#ask<{ lines: LogLine[] }>("log", (told) => (this.#earlier = told.lines));
    void this.#ask<Swarm | null>("swarm", (told) => (this.#spread = told));
    const told = await this.#ask<History>("history", (found) => (this.history = this.status ? grown(found, this.status) : found));
    if (told || this.#recalled !== "told") this.#recalled = told ? "told" : "failed";
  }

  async #sample(): Promise<void> {
    const { settled } = this.#course;
    try {
      this.samples = await get<RunSamples>(`/api/runs/${encodeURIComponent(this.id)}/samples?count=24`);
      this.#sampled = answered(settled);
      this.#unsampled = null;
    } catch (error) {
      this.#sampled = failed(this.#sampled, settled);
      this.#unsampled = asProblem(error);
    }
  }
}
