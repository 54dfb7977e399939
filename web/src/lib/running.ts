/** What a run is doing, in the words of `crowdgrad runs`, and what may be wished of it then. */
import type { HostStatus, RunSeen } from "./types.ts";

export type State =
  | "starting" | "waiting" | "running" | "paused" | "finishing" | "ending"
  | "finished" | "stopped" | "failed" | "crashed" | "unknown";
export type Wish = "pause" | "resume" | "finish" | "stop" | "restart";

/** The panel lists the newest so many, and says nothing of older ones: MOST_SHOWN in crowdgrad/panel/runs.py. */
export const MOST_LISTED = 200;

const STATES: readonly string[] = [
  "starting", "waiting", "running", "paused", "finishing", "ending", "finished", "stopped", "failed", "crashed",
];
const WISHES: Record<State, readonly Wish[]> = {
  starting: ["stop"],
  waiting: ["pause", "finish", "stop"],
  running: ["pause", "finish", "stop"],
  paused: ["resume", "finish", "stop"],
  finishing: ["stop"],
  ending: [],
  finished: [],
  stopped: ["restart"],
  failed: ["restart"],
  crashed: ["restart"],
  unknown: [],
};

export const asState = (word: string): State => (STATES.includes(word) ? (word as State) : "unknown");

/** See `_live_state` in crowdgrad/host/remote/runs.py. */
export function stateOf(status: HostStatus): State {
  if (status.phase === "training" && status.paused) return "paused";
  if (status.phase === "validating" || status.phase === "testing") return "finishing";
  return asState(status.state);
}

/** What the list says of a run without a host counts more than a last word from its host. */
export function stateNow(status: HostStatus | null, seen: RunSeen | null): State {
  if (seen && !seen.alive) return asState(seen.state);
  if (status) return stateOf(status);
  return seen ? asState(seen.state) : "unknown";
}

export const isOver = (state: State): boolean => ["finished", "stopped", "failed", "crashed"].includes(state);

export function wishes(state: State, resumable: boolean): readonly Wish[] {
  return WISHES[state].filter((wish) => wish !== "restart" || resumable);
}

/** Seconds until the end, should it go on as it went; null where nobody can say. */
export function timeLeft(progress: number, elapsed: number): number | null {
  if (progress < 0.01 || progress >= 1 || elapsed < 2) return null;
  return (elapsed * (1 - progress)) / progress;
}
