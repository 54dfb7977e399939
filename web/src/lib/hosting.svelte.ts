/** What is chosen on the host page; kept in the tab, so that a reload loses nothing. */
import { get } from "./api.ts";
import { rescale } from "./estimate.ts";
import { capital } from "./format.ts";
import { missing } from "./readiness.ts";
import { recall, remember } from "./tab.ts";
import type { CatalogueEntry, CheckReport, DataFound, Draft, Estimate, HostWish, Reach, ReadyModel, RecipeInfo } from "./types.ts";

const KEY = "crowdgrad-host";
const FOUND = "crowdgrad-host-found";
const REPORT = "crowdgrad-host-report";
const SMALL = 5000;

interface Kept {
  draft: Draft;
  /** What the report is of, … */
  checked: string;
  /** … and what a check was asked of last. */
  asked: string;
  reach: Reach;
  matchmaker: string;
  agree: boolean;
  helpers: number;
  child: string;
}

const fresh = (): Kept => ({
  draft: {
    title: "", cause: "", description: "", contact: "", data: "", model: null, task: null, folder: "",
    recipe: { name: "crowd", lr: 0.1, batch_size: 100 }, stop: { epochs: 20 },
    volunteers: { minimum: 1, maximum: 10 }, seed: 1,
  },
  checked: "", asked: "", reach: "here", matchmaker: "", agree: false, helpers: 2, child: "",
});

class Hosting {
  now = $state<Kept>({ ...fresh(), ...recall<Partial<Kept>>(KEY) });
  /** Large, and never changed but as a whole: kept apart, so that a moved slider does not write it again. */
  found = $state.raw(recall<DataFound>(FOUND));
  report = $state.raw(recall<CheckReport>(REPORT));
  models = $state.raw<ReadyModel[]>([]);
  recipes = $state.raw<RecipeInfo[]>([]);
  /** null: not asked yet. */
  catalogue = $state.raw<CatalogueEntry[] | null>(null);

  constructor() {
    $effect.root(() => {
      $effect(() => remember(KEY, this.now));
      $effect(() => remember(FOUND, this.found));
      $effect(() => remember(REPORT, this.report));
    });
  }

  /** What there is to choose from; what is on this computer may change. */
  async look(): Promise<void> {
    const [catalogue, recipes] = await Promise.all([get<CatalogueEntry[]>("/api/catalogue"), get<RecipeInfo[]>("/api/recipes")]);
    this.catalogue = catalogue;
    this.recipes = recipes;
  }

  get draft(): Draft {
    return this.now.draft;
  }

  again(): void {
    this.now = fresh();
    this.found = this.report = null;
    this.models = [];
  }

  /** Take the data, and with it a model and numbers that suit it. */
  async take(found: DataFound): Promise<void> {
    const draft = this.draft;
    if (!draft.title || draft.title === capital(this.found?.title ?? "")) draft.title = capital(found.title);
    if (draft.data !== found.data) this.now.agree = false; // it was said of other data
    draft.data = found.data;
    draft.recipe["batch_size"] = found.records < SMALL ? 32 : 100;
    draft.stop.epochs = found.records < SMALL ? 20 : 5;
    this.found = found;
    this.report = null;
    await this.fit();
  }

  /** Which models fit the data; choose the first where the present one does not. */
  async fit(): Promise<void> {
    const data = this.draft.data;
    const models = await get<ReadyModel[]>(`/api/models?data=${encodeURIComponent(data)}`);
    if (data !== this.draft.data) return;
    const forced = this.none && this.draft.task === "";
    this.models = models;
    if (this.draft.task !== null && !forced) return;
    if (models.some((one) => one.kind === this.draft.model?.["kind"] && !one.fits)) return;
    const first = models.find((one) => !one.fits);
    if (first) this.choose(first);
    else this.chooseOwn();
  }

  /** Whether no ready-made model reads the data. */
  get none(): boolean {
    return this.models.length > 0 && this.models.every((one) => one.fits !== "");
  }

  choose(model: ReadyModel): void {
    this.draft.task = null;
    this.draft.model = { kind: model.kind, ...Object.fromEntries(model.sliders.map((one) => [one.name, one.default])) };
  }

  chooseOwn(): void {
    this.draft.model = null;
    this.draft.task = "";
  }

  /** A recipe begins with its own learning rate; the batch stays as it suits the data. */
  cook(recipe: RecipeInfo): void {
    const rate = recipe.fields.find((field) => field.name === "lr")?.default;
    const batch_size = this.draft.recipe["batch_size"];
    this.draft.recipe = { name: recipe.name, lr: typeof rate === "number" ? rate : 0.1, batch_size };
  }

  /** What a check is of: it speaks for nothing else. */
  get subject(): string {
    const { data, model, task, folder } = this.draft;
    return JSON.stringify([data, model, task, folder]);
  }

  /** Whether the report is of what is chosen now. */
  get current(): boolean {
    return this.now.checked === this.subject;
  }

  learn(report: CheckReport, subject: string): void {
    this.report = report;
    this.now.checked = subject;
  }

  /** What the sliders mean; null: nothing was measured yet. */
  get estimate(): Estimate | null {
    const report = this.report;
    if (!report?.travels) return null;
    const { recipe, stop } = this.draft;
    return rescale(report.estimate, Number(recipe["batch_size"]), stop.epochs, this.computers, this.codec);
  }

  /** How numbers travel: as chosen, or as the recipe has it. */
  get codec(): string {
    const { recipe } = this.draft;
    const fields = this.recipes.find((one) => one.name === recipe["name"])?.fields;
    return String(recipe["codec"] ?? fields?.find((field) => field.name === "codec")?.default ?? "");
  }

  /** Helpers on one computer share it. */
  get computers(): number {
    return this.now.reach === "here" ? 1 : this.draft.volunteers.maximum;
  }

  /** What is asked for, started or saved. */
  get wish(): Pick<HostWish, "helpers" | "reach" | "matchmaker"> & { draft: Draft } {
    const { draft, helpers, reach, matchmaker } = this.now;
    return { draft, helpers, reach, ...(reach === "matchmaker" ? { matchmaker: matchmaker.trim() } : {}) };
  }

  /** Why it cannot start yet; empty: it can. */
  get missing(): string {
    return missing(this.now);
  }
}

export const hosting = new Hosting();
