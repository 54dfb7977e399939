/** Requests to the server this page came from, and what it refuses in words. */
import { boot } from "./boot.ts";
import { bearing } from "./entrance.ts";
import { t } from "./texts.ts";
import type { Problem } from "./types.ts";

export type { Problem };

export class Refused extends Error {
  readonly problem: Problem;
  /** Of HTTP; 0: nobody answered. */
  readonly status: number;

  constructor(status: number, problem: Problem) {
    super(problem.message);
    this.status = status;
    this.problem = problem;
  }
}

type Method = "GET" | "POST" | "PUT" | "DELETE";

export async function call<T, Body = unknown>(method: Method, path: string, body?: Body, signal: AbortSignal | null = null): Promise<T> {
  const headers: Record<string, string> = {};
  const request: RequestInit = { method, headers, signal };
  if (body instanceof Blob) request.body = body;
  else if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    request.body = JSON.stringify(body);
  }
  const [answer, text] = await asked(path, request, (it) => it.text());
  const told: unknown = text ? safely(text) : null;
  if (!answer.ok) throw new Refused(answer.status, problemOf(told, answer.status));
  return told as T;
}

/** What is no JSON, as it comes. */
export async function fetched(path: string): Promise<Blob> {
  const [answer, found] = await asked(path, {}, (it) => it.blob());
  if (!answer.ok) throw new Refused(answer.status, problemOf(safely(await found.text()), answer.status));
  return found;
}

/** A host that sleeps answers nobody, and refuses nobody either; the panel may rightly take its time. */
const PATIENCE_MS = 10_000;

/** Reading is part of it: an answer may break off, too. */
async function asked<T>(path: string, request: RequestInit, read: (answer: Response) => Promise<T>): Promise<[Response, T]> {
  const ours = boot().serves === "panel";
  const signal = request.signal ?? (ours ? null : AbortSignal.timeout(PATIENCE_MS));
  try {
    const answer = await fetch(path, { ...request, signal, headers: { ...request.headers, ...bearing() } });
    return [answer, await read(answer)];
  } catch {
    throw new Refused(0, { code: "", ...t.trouble[ours ? "panel" : "server"] });
  }
}

export const get = <T>(path: string): Promise<T> => call<T>("GET", path);
/** `Body`: what the route takes, by its name in types.ts. */
export const post = <T, Body = unknown>(path: string, body?: Body): Promise<T> => call<T>("POST", path, body ?? {});
export const put = <T, Body = unknown>(path: string, body: Body): Promise<T> => call<T, Body>("PUT", path, body);

export function problemOf(told: unknown, status: number): Problem {
  const found = told && typeof told === "object" ? (told as Record<string, unknown>) : {};
  const inner = found["error"] ?? found["detail"] ?? found;
  if (typeof inner === "string") return { code: String(status), message: inner, advice: "" };
  const words = inner && typeof inner === "object" ? (inner as Record<string, unknown>) : {};
  return {
    code: String(words["code"] ?? status),
    message: String(words["message"] ?? t.trouble.status(status)),
    advice: String(words["advice"] ?? ""),
  };
}

export function asProblem(error: unknown): Problem {
  if (error instanceof Refused) return error.problem;
  return { code: "", message: error instanceof Error ? error.message : String(error), advice: "" };
}

/** Whether what was asked for is not there. */
export const isMissing = (error: unknown): boolean => error instanceof Refused && error.status === 404;

function safely(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return { message: text.slice(0, 300) };
  }
}
