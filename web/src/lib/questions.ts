/** Whether a model is asked about a drawing, again and again as it learns. */

/** The last question, and how often in a row it failed. */
export interface Asked {
  input: readonly number[] | null;
  version: string;
  failures: number;
}
export const NOTHING: Asked = { input: null, version: "", failures: 0 };
/** Of one drawing and one version; another one is asked about anew. */
export const MOST_FAILURES = 5;

const same = (asked: Asked, input: readonly number[], version: string): boolean => asked.input === input && asked.version === version;

export function asks(asked: Asked, input: readonly number[], version: string): boolean {
  if (!same(asked, input, version)) return true;
  return asked.failures > 0 && asked.failures < MOST_FAILURES;
}

export const answered = (input: readonly number[], version: string): Asked => ({ input, version, failures: 0 });

export function refused(asked: Asked, input: readonly number[], version: string): Asked {
  return { input, version, failures: same(asked, input, version) ? asked.failures + 1 : 1 };
}
