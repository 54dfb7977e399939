/** Where in the panel we are: the part of the address behind `#`. */

export type Page = "start" | "host" | "run" | "runs" | "work";

export interface Route {
  page: Page;
  id: string;
}

const PAGES: readonly string[] = ["host", "run", "runs", "work"];

export function parse(hash: string): Route {
  const [page = "", ...rest] = hash.replace(/^#\/?/, "").split("/");
  if (!PAGES.includes(page)) return { page: "start", id: "" };
  return { page: page as Page, id: decodeURIComponent(rest.join("/")) };
}

class Here {
  route = $state<Route>(parse(location.hash));

  constructor() {
    window.addEventListener("hashchange", () => {
      this.route = parse(location.hash);
    });
  }
}

export const here = new Here();

export function go(page: Page, id = ""): void {
  location.hash = page === "start" ? "#/" : `#/${page}${id ? `/${encodeURIComponent(id)}` : ""}`;
}
