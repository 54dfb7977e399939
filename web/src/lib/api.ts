/** Requests to the server this page came from, and what it refuses in words. */
import type { Problem } from "./types.ts";

export type { Problem };

export class Refused extends Error {
  readonly problem: Problem;
  readonly status: number;

  constructor(status: number, problem: Problem) {
    super(problem.message);
    this.status = status;
    this.problem = problem;
  }
}

export const UNREACHABLE: Problem = {
  code: "",
  message: "crowdgrad does not answer on this machine.",
  advice: "If you ended it, start it again with `crowdgrad` and open the address it prints.",
};

type Method = "GET" | "POST" | "PUT" | "DELETE";

export async function call<T>(method: Method, path: string, body?: unknown, signal: AbortSignal | null = null): Promise<T> {
  const headers: Record<string, string> = { "X-Crowdgrad": "1" };
  const request: RequestInit = { method, headers, signal };
  if (body instanceof Blob) request.body = body;
  else if (body !== undefined) {
    headers["Content-Type"] = "application/json";
    request.body = JSON.stringify(body);
  }
  let answer: Response;
  try {
    answer = await fetch(path, request);
  } catch {
    throw new Refused(0, UNREACHABLE);
  }
  const text = await answer.text();
  const told: unknown = text ? safely(text) : null;
  if (!answer.ok) throw new Refused(answer.status, problemOf(told, answer.status));
  return told as T;
}

export const get = <T>(path: string): Promise<T> => call<T>("GET", path);
export const post = <T>(path: string, body: unknown = {}): Promise<T> => call<T>("POST", path, body);
export const put = <T>(path: string, body: unknown): Promise<T> => call<T>("PUT", path, body);

export function problemOf(told: unknown, status: number): Problem {
  const found = told && typeof told === "object" ? (told as Record<string, unknown>) : {};
  const inner = found["error"] ?? found["detail"] ?? found;
  if (typeof inner === "string") return { code: String(status), message: inner, advice: "" };
  const words = inner && typeof inner === "object" ? (inner as Record<string, unknown>) : {};
  return {
    code: String(words["code"] ?? status),
    message: String(words["message"] ?? `The server said ${status}.`),
    advice: String(words["advice"] ?? ""),
  };
}

export function asProblem(error: unknown): Problem {
  if (error instanceof Refused) return error.problem;
  return { code: "", message: error instanceof Error ? error.message : String(error), advice: "" };
}

function safely(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return { message: text.slice(0, 300) };
  }
}
