/** What has become of a host that was asked to start. */
import type { Problem } from "./api.ts";
import { t } from "./texts.ts";
import type { Child } from "./types.ts";

export type Became = { kind: "starts" } | { kind: "run"; run: string } | { kind: "failed"; problem: Problem };

/** `child`: as the panel tells it, if it does; `anew`: whether it has told everything since it was asked to start. */
export function became(child: Child | undefined, anew: boolean): Became {
  const words = t.host.publish;
  if (!child) return anew ? failed(words.gone, words.goneAdvice) : { kind: "starts" };
  if (child.state === "failed") return child.error ? { kind: "failed", problem: child.error } : failed(child.doing || words.over, words.overAdvice);
  if (child.run && child.state !== "starting") return { kind: "run", run: child.run };
  return child.state === "over" ? failed(child.doing || words.over, words.overAdvice) : { kind: "starts" };
}

const failed = (message: string, advice: string): Became => ({ kind: "failed", problem: { code: "", message, advice } });
