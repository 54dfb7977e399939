/** Where in the panel we are: the part of the address behind `#`. */
import { parse, type Page, type Route } from "./routes.ts";

export type { Page };

class Here {
  route = $state<Route>(parse(location.hash));
  /** What the page is about, where that has a name of its own. */
  title = $state("");

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
