/** Whether a model is asked what it says of test samples: while it learns again and again, else until it has answered. */

export interface Sampled {
  /** Whether what is shown was said by a model that learns no more; null: nothing is. */
  of: boolean | null;
  /** How often in a row it was asked in vain … */
  tries: number;
  /** … and of which it was. */
  tried: boolean;
}
export interface Course {
  /** Its host is only starting. */
  begins: boolean;
  trains: boolean;
  /** Its host has ended: the model is the best it had, and stays so. */
  settled: boolean;
}
export const UNSAMPLED: Sampled = { of: null, tries: 0, tried: false };
export const MOST_TRIES = 5;

const inVain = (sampled: Sampled, settled: boolean): number => (sampled.tried === settled ? sampled.tries : 0);

export function asks({ begins, trains, settled }: Course, sampled: Sampled): boolean {
  return trains || (!begins && sampled.of !== settled && inVain(sampled, settled) < MOST_TRIES);
}

/** Whether nobody asks any more, though it has not answered. */
export const givenUp = (course: Course, sampled: Sampled): boolean =>
  !course.begins && sampled.of !== course.settled && inVain(sampled, course.settled) >= MOST_TRIES;

export const answered = (settled: boolean): Sampled => ({ of: settled, tries: 0, tried: settled });

export const failed = (sampled: Sampled, settled: boolean): Sampled => ({
  of: sampled.of, tries: inVain(sampled, settled) + 1, tried: settled,
});
