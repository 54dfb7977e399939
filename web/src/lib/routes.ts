/** What stands behind `#` in the address, as a page of the panel. */

export type Page = "start" | "host" | "run" | "runs" | "work";

export interface Route {
  page: Page;
  id: string;
}

const PAGES: readonly string[] = ["host", "run", "runs", "work"];

export function parse(hash: string): Route {
  const [page = "", ...rest] = hash.replace(/^#\/?/, "").split("/");
  if (!PAGES.includes(page)) return { page: "start", id: "" };
  return { page: page as Page, id: decoded(rest.join("/")) };
}

/** People also type addresses: what is no code stays as it is. */
function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
