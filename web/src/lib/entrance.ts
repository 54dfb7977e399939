/**
 * What lets this page ask the panel: a key, for what stood behind `#` in the address that was printed. It lies with
 * this origin, port and all, and in no cookie: those are sent to every other server of this machine, too.
 */
import { boot } from "./boot.ts";

const NAME = "crowdgrad.key";
const ENTER = "/api/enter";
const GIVEN = /^#enter=([\w-]+)$/;

/** Where a browser keeps nothing, it lasts as long as the page. */
let here = "";

/** Empty: this browser was never let in. Another page of ours may have a newer one. */
export function key(): string {
  if (boot().serves !== "panel") return "";
  try {
    return localStorage.getItem(NAME) ?? here;
  } catch {
    return here;
  }
}

export function bearing(): Record<string, string> {
  const known = key();
  return known ? { Authorization: `Bearer ${known}` } : {};
}

/** Of a WebSocket, which takes no header. */
export const protocols = (): string[] => ["crowdgrad", `key.${key()}`];

/** Whether the address has just let somebody in, or would. */
export const atTheDoor = (): boolean => GIVEN.test(location.hash);

/** With what stands in the address, which does not stay there. Whether there is a key now. */
export async function enter(): Promise<boolean> {
  const given = GIVEN.exec(location.hash)?.[1];
  if (given) {
    history.replaceState(null, "", location.pathname);
    const found = await exchange(given);
    if (found) keep(found);
  }
  return key() !== "";
}

/** Whether the panel still knows this browser; it may have been started anew. */
export async function known(): Promise<boolean> {
  return (await exchange(key())) !== "";
}

/** Calls back when another page of ours was let in. */
export function whenLetIn(act: () => void): void {
  window.addEventListener("storage", (event) => {
    if (event.key === NAME && event.newValue) act();
  });
}

/** The key; empty: this lets nobody in. Where nobody answers, what is kept may still be good. */
async function exchange(given: string): Promise<string> {
  try {
    const answer = await fetch(ENTER, { method: "POST", headers: { Authorization: `Bearer ${given}` } });
    return answer.ok ? ((await answer.json()) as { key: string }).key : answer.status === 401 ? "" : given;
  } catch {
    return given === key() ? given : "";
  }
}

function keep(found: string): void {
  here = found;
  try {
    localStorage.setItem(NAME, found);
  } catch {
    // forbidden, or full
  }
}
