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

const address = (page: Page, id: string): string => (page === "start" ? "#/" : `#/${page}${id ? `/${encodeURIComponent(id)}` : ""}`);

export function go(page: Page, id = ""): void {
  location.hash = address(page, id);
}

/** The same place by another name: "Back" does not lead to the one before. */
export function rename(page: Page, id: string): void {
  location.replace(address(page, id));
}
