/** Data that is fetched, uploaded and read; it goes on whatever page is shown. */
import { asProblem, call, post, type Problem } from "./api.ts";
import { Errand } from "./errand.svelte.ts";
import { MOST_FILES, type Named } from "./files.ts";
import { hosting } from "./hosting.svelte.ts";
import { recall, remember } from "./tab.ts";
import { t } from "./texts.ts";
import type { Begun, DataFound, DataWish, Uploaded } from "./types.ts";

const KEY = "crowdgrad-reading";
const words = t.host.data;

class Reading {
  readonly errand = new Errand<DataFound>("data");
  target = $state("");
  #problem = $state.raw<Problem | null>(null);
  /** What was read last, by the names the panel knows. */
  #wish = recall<DataWish>(KEY);

  /** What went wrong last. */
  get problem(): Problem | null {
    return this.#problem ?? this.errand.problem;
  }

  /** What was begun before a reload. */
  async resume(): Promise<void> {
    await this.#take(await this.errand.again());
  }

  /** A name of the catalogue, or a path. */
  read(source: string): Promise<void> {
    return this.#read(async () => source);
  }

  /** The same again, without the records that cannot be used. */
  async skipBad(): Promise<void> {
    const wish = this.#wish;
    if (wish) await this.#run(async () => ({ ...wish, skip_bad: true }));
  }

  async takeFiles(coming: Promise<Named[]>): Promise<void> {
    try {
      const files = await coming;
      if (files.length === 0) this.#problem = { code: "", message: words.noFile, advice: words.noFileAdvice };
      else if (files.length > MOST_FILES) this.#problem = { code: "", message: words.tooMany(MOST_FILES), advice: "" };
      else await this.#read((signal) => this.#upload(files, signal));
    } catch {
      this.#problem = { code: "", message: words.unreadable, advice: words.unreadableAdvice };
    }
  }

  forget(): void {
    this.errand.forget();
    this.#problem = null;
    this.target = "";
  }

  #read(begin: (signal: AbortSignal) => Promise<string>): Promise<void> {
    const target = this.target.trim();
    return this.#run(async (signal) => ({
      source: await begin(signal), skip_bad: false, ...(target ? { target } : {}),
    }));
  }

  async #run(begin: (signal: AbortSignal) => Promise<DataWish>): Promise<void> {
    this.#problem = null;
    const found = await this.errand.run(async (signal) => {
      this.#wish = await begin(signal);
      remember(KEY, this.#wish);
      return post<Begun>("/api/data", this.#wish);
    });
    await this.#take(found);
  }

  async #take(found: DataFound | null): Promise<void> {
    try {
      if (found) await hosting.take(found);
    } catch (error) {
      this.#problem = asProblem(error);
    }
  }

  async #upload(files: Named[], signal: AbortSignal): Promise<string> {
    let set = "";
    for (const [n, { name, file }] of files.entries()) {
      this.errand.say(words.uploading(name, n + 1, files.length), n / files.length);
      const query = new URLSearchParams({ name, ...(set ? { set } : {}) });
      set = (await call<Uploaded>("POST", `/api/uploads?${query}`, file, signal)).set;
    }
    return set;
  }
}

export const reading = new Reading();
