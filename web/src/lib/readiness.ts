/** Whether what is chosen on the host page can start, and what to do where it cannot. */
import { t } from "./texts.ts";
import type { Draft, Reach } from "./types.ts";

export interface Choices {
  draft: Pick<Draft, "data" | "model" | "task" | "volunteers">;
  reach: Reach;
  matchmaker: string;
  agree: boolean;
  helpers: number;
}

/** How many must be here before it begins: helpers count, the host's own worker does not. */
export const waitsFor = ({ start, minimum }: Draft["volunteers"]): number => (start === "all" ? minimum : 0);

/** What it lacks; empty: it can start. */
export function missing({ draft, reach, matchmaker, agree, helpers }: Choices): string {
  const words = t.host.publish;
  const waits = waitsFor(draft.volunteers);
  const { maximum } = draft.volunteers;
  if (!draft.data) return words.needData;
  if (!draft.model && !draft.task?.includes(":")) return words.needTask;
  if (waits > maximum) return words.needRoom(waits, maximum);
  if (helpers > maximum) return words.needPlaces(helpers, maximum);
  if (reach === "here" && helpers < 1) return words.needHelper;
  if (reach === "here" && helpers < waits) return words.needHelpers(waits);
  if (reach === "matchmaker" && !matchmaker.trim()) return words.needMatchmaker;
  return reach !== "here" && !agree ? words.needAgree : "";
}
