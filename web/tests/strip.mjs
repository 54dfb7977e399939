/** Lets Node run TypeScript, also versions that cannot by themselves: `node --import ./tests/strip.mjs`. */
import { readFile } from "node:fs/promises";
import { register } from "node:module";
import { isMainThread } from "node:worker_threads";
import typescript from "typescript";

if (isMainThread) register(import.meta.url);

export async function load(url, context, next) {
  if (!url.endsWith(".ts")) return next(url, context);
  const { outputText } = typescript.transpileModule(await readFile(new URL(url), "utf8"), {
    compilerOptions: { target: "ES2022", module: "ESNext", verbatimModuleSyntax: true },
  });
  return { format: "module", source: outputText, shortCircuit: true };
}
