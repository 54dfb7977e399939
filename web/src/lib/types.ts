/** What the APIs say, by the names the app uses. `scripts/types` writes `../api/` from their OpenAPI documents. */
import type { components as Host } from "../api/host.ts";
import type { components as Matchmaker } from "../api/matchmaker.ts";
import type { components as Panel, webhooks } from "../api/panel.ts";
import type { components as Volunteer } from "../api/volunteer.ts";

type OfHost = Host["schemas"];
type OfMatchmaker = Matchmaker["schemas"];
type OfPanel = Panel["schemas"];
type OfVolunteer = Volunteer["schemas"];

/** The panel's one stream: each event, and what it carries. */
export type Heard = {
  [Event in keyof webhooks]: webhooks[Event]["post"]["requestBody"]["content"]["application/json"];
};

// The panel
export type Child = OfPanel["ChildState"];
export type PanelState = OfPanel["PanelState"];
export type Problem = Pick<OfPanel["Problem"], "code" | "message" | "advice">;
export type Result = NonNullable<OfPanel["Task"]["result"]>;
/** `T`: what this kind of task brings back. */
export type Task<T extends Result = Result> = Omit<OfPanel["Task"], "result"> & { result: T | null };
export type Begun = OfPanel["Begun"];
export type Machine = OfPanel["Machine"];
export type CatalogueEntry = OfPanel["CatalogueEntry"];
export type Uploaded = OfPanel["Uploaded"];
export type DataWish = OfPanel["DataWish"];
export type DataFound = OfPanel["DataFound"];
export type ReadyModel = OfPanel["ReadyModel"];
export type RecipeInfo = OfPanel["RecipeInfo"];
/** Whole: what may be left out is filled in. */
export type Draft = Required<OfPanel["Draft"]>;
export type HostWish = OfPanel["HostWish"];
export type Reach = HostWish["reach"];
export type CheckReport = OfPanel["Travels"] | OfPanel["Stays"];
export type Estimate = OfPanel["Estimate"];
export type SaveWish = OfPanel["SaveWish"];
export type Saved = OfPanel["Saved"];
export type Started = OfPanel["Started"];
export type RunSeen = OfPanel["Seen"];
export type RateWish = OfPanel["RateWish"];
/** What became of a wish to a run. */
export type Answer = OfPanel["Wished"];
export type Working = OfPanel["Working"];
export type Journal = OfPanel["Past"];

// A run's host
export type HostStatus = OfHost["Status"];
/** Which way what is watched improves. */
export type Better = HostStatus["better"];
export type Member = OfHost["MemberStatus"];
export type Point = OfHost["Point"];
export type TrainingPoint = OfHost["TrainingPoint"];
export type History = OfHost["Curves"];
export type LogLine = OfHost["LogLine"];
export type RunSamples = OfHost["Samples"];
export type PredictWish = OfHost["Question"];
export type Answers = OfHost["Prediction"];
export type Swarm = OfHost["SwarmStatus"];
export type JobPage = OfHost["JobPage"];
export type Helper = OfHost["Helper"];

// The volunteer
export type WorkStatus = OfVolunteer["WorkStatus"];
export type Limits = OfVolunteer["Limits"];
export type Profile = OfVolunteer["Profile"];
/** What became of a wish to it. */
export type WorkAnswer = OfVolunteer["Answer"];
export type PauseWish = OfVolunteer["PauseWish"];
export type AnswerWish = OfVolunteer["AnswerWish"];

// The matchmaker
export type JobSummary = OfMatchmaker["JobSummary"];
export type JobList = OfMatchmaker["JobList"];
export type Totals = OfMatchmaker["TotalsBody"];
export type Health = OfMatchmaker["Health"];
