/** What the APIs say. */
import type { Problem } from "./api.ts";

export interface Child {
  id: string;
  kind: "host" | "work";
  state: "starting" | "running" | "over" | "failed";
  doing: string;
  run: string | null;
  error: Problem | null;
}
export interface PanelState {
  children: Child[];
}
export interface Task<T = unknown> {
  id: string;
  kind: string;
  state: "running" | "done" | "failed" | "stopped";
  progress: number | null;
  doing: string;
  result: T | null;
  error: Problem | null;
}
export interface Machine {
  name: string;
  os: string;
  cores: number;
  memory_mb: number;
  gpu: string;
  gflops: number;
  can_host: boolean;
  why_not: string;
  version: string;
  matchmaker: string;
}
export interface CatalogueEntry {
  name: string;
  title: string;
  summary: string;
  bytes: number;
  here: boolean;
}
export interface Sample {
  input: number[] | string;
  label: string | null;
}
export interface DataFound {
  data: string;
  title: string;
  records: number;
  kind: "image" | "table" | "text" | "other";
  shape: number[];
  classes: string[] | null;
  fields: { name: string; kind: string; sentence: string }[];
  splits: { train: number; validation: number; test: number };
  problems: string[];
  samples: Sample[];
}
export interface SliderSpec {
  name: string;
  least: number;
  most: number;
  step: number;
  default: number | string;
  help: string;
  /** Words to choose from, instead of a number. */
  choices?: string[];
}
export interface ReadyModel {
  kind: string;
  title: string;
  sentence: string;
  sliders: SliderSpec[];
  fits: string;
}
export interface RecipeInfo {
  name: string;
  sentence: string;
  when: string;
  fields: { name: string; help: string; default: unknown; kind: string }[];
}
export interface Draft {
  title: string;
  cause: string;
  description: string;
  contact: string;
  data: string;
  model: Record<string, string | number> | null;
  task: string | null;
  folder: string;
  recipe: Record<string, unknown>;
  stop: { epochs: number; target?: number; minutes?: number };
  volunteers: { minimum: number; maximum: number };
  seed: number;
}
export interface Estimate {
  parameters: number;
  bytes_per_update: number;
  data_bytes: number;
  samples: number;
  steps_per_epoch: number;
  step_s: number;
  samples_per_s: number;
  epoch_s: number;
  total_s: number;
  memory_bytes: number;
}
export interface CheckReport {
  travels: boolean;
  reason: string;
  max_gradient_error: number | null;
  parameters: number;
  bytes_per_update: number;
  operators: Record<string, number> | string[];
  estimate: Estimate | null;
}
export interface Point {
  at_s: number;
  epoch: number;
  loss: number;
  metrics: Record<string, number>;
  train_loss: number | null;
}
export interface TimeSplit {
  compute_share: number;
  exchange_share: number;
  wait_share: number;
}
export interface Member {
  position: number;
  id: string;
  name: string;
  connected: boolean;
  state: string;
  units: number;
  samples: number;
  share: number;
  credit: number;
  samples_per_s: number;
  mean_staleness: number;
  refused: number;
  ignored: number;
  max_staleness: number;
  bytes_received: number;
  bytes_sent: number;
  times: TimeSplit;
}
export interface HostStatus {
  job: string;
  title: string;
  recipe: string;
  phase: string;
  state: string;
  reason: string;
  paused: boolean;
  elapsed_s: number;
  progress: number;
  epochs_done: number;
  epochs: number;
  version: string;
  updates: number;
  samples: number;
  refused: number;
  ignored: number;
  notice: string;
  learning_rate: number;
  samples_per_s: number;
  updates_per_s: number;
  mean_staleness: number;
  max_staleness: number;
  train_loss: number | null;
  validation: Point | null;
  best: Point | null;
  test: Point | null;
  metric: string | null;
  better: "higher" | "lower";
  members: Member[];
  others: { members: number; connected: number; samples: number; share: number };
  staleness: { least: number; most: number; updates: number }[];
  bytes_received: number;
  bytes_sent: number;
  bytes_received_per_s: number;
  bytes_sent_per_s: number;
  times: TimeSplit;
  departures: { name: string; reason: string; at_s: number }[];
}
export interface TrainingPoint {
  at_s: number;
  epoch: number;
  loss: number | null;
  samples_per_s: number;
  updates_per_s: number;
  staleness: number;
  members: number;
  bytes_received_per_s: number;
  bytes_sent_per_s: number;
  learning_rate: number;
}
export interface History {
  evaluations: Point[];
  training: TrainingPoint[];
}
export interface LogLine {
  n: number;
  at: number;
  level: string;
  text: string;
}
export interface RunSample {
  index: number;
  input: number[] | string;
  label: string | null;
  predicted: string | null;
  probability: number | null;
  right: boolean | null;
}
export interface RunSamples {
  kind: "image" | "numbers" | "text" | "other";
  shape: number[];
  classes: string[] | null;
  version: string;
  samples: RunSample[];
}
export interface Answers {
  version: string;
  answers: { label: string; probability: number }[];
}
/** See crowdgrad/host/telling/swarm_status.py; 0 is the host. */
export interface SwarmMember {
  position: number;
  name: string;
  here: boolean;
  held_chunks: number;
  wanted_chunks: number;
  progress: number;
  received_bytes: number;
  from_host_bytes: number;
  passed_on_bytes: number;
  wasted_bytes: number;
  bad_chunks: number;
  neighbours: number[];
  dialled: boolean;
  gives: boolean;
  trusted: boolean;
  map: number[];
  source: number | null;
  state: string;
}
export interface Swarm {
  plan: string;
  sentence: string;
  share: string;
  chunks: number;
  bytes: number;
  wanted_bytes: number;
  progress: number;
  host_sent_bytes: number;
  host_copies: number;
  rarest: number;
  here: number;
  complete: number;
  reason: string;
  members: SwarmMember[];
  others: { members: number; here: number; complete: number; received_bytes: number; passed_on_bytes: number };
  flows: { sender: number; receiver: number; bytes: number }[];
}
/** What became of a wish. */
export interface Answer {
  state: string;
  changed: boolean;
  holds: boolean;
  reason: string;
}
export interface RunSeen {
  id: string;
  title: string;
  state: string;
  reason: string;
  alive: boolean;
  epochs_done: number | null;
  epochs: number | null;
  watched: string;
  best: string;
  test: string;
  started_at: number;
  bytes: number;
  resumable: boolean;
  folder?: string;
  members: number | null;
  child: string | null;
}
export interface Profile {
  share: number;
  threads: number;
}
export interface Limits {
  in_use: Profile;
  idle: Profile;
  only_when_idle: boolean;
  idle_after_s: number;
  on_battery: boolean;
  hours: string;
  memory_mb: number;
  cache_mb: number;
  most_upload_mbps: number;
  most_download_mbps: number;
}
export interface Effort {
  share: number;
  threads: number;
  reason: string;
  until: number | null;
}
export interface WorkStatus {
  name: string;
  key: string;
  state: "starting" | "looking" | "asking" | "working" | "paused" | "waiting" | "over";
  doing: string;
  effort: Effort;
  readings: { idle_s: number | null; on_battery: boolean | null; battery: number | null; load: number | null };
  limits: Limits;
  job: {
    id: string;
    title: string;
    cause: string;
    host: string;
    host_name: string;
    address: string;
    engine: string;
    memory_bytes: number;
    data_bytes: number;
    position: number;
  } | null;
  question: { id: string; title: string; cause: string; host: string; host_name: string; lines: string[] } | null;
  samples: number;
  accepted: number;
  refused: number;
  loss: number | null;
  compute_s: number;
  samples_per_s: number;
  since: number;
  log: { at: number; kind: string; text: string }[];
  jobs: {
    title: string;
    host: string;
    code: string;
    samples: number;
    credit: number | null;
    reason: string;
    left: boolean;
    ended_at: number;
  }[];
  totals: { samples: number; credit: number; jobs: number; seconds: number };
  trouble: string;
  data: { done: number; total: number } | null;
}
export interface JobPage {
  title: string;
  cause: string;
  description: string;
  contact: string;
  host: string;
  code: string;
  local_code: string;
  link: string;
  matchmaker: string;
  state: string;
  phase: string;
  reason: string;
  progress: number;
  epochs_done: number;
  epochs: number;
  metric: string | null;
  watched: string;
  best: string;
  members: { name: string; samples: number; share: number; connected: boolean }[];
  here: number;
  took_part: number;
  samples: number;
  samples_per_s: number;
  eta_s: number | null;
  started_at: number | null;
  curve: { at_s: number; value: number }[];
}
