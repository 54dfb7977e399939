/** Colours for canvases, from the same custom properties as everything else. */

class Scheme {
  /** Grows whenever colours have changed: read it to draw again. */
  changes = $state(0);

  constructor() {
    matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => (this.changes += 1));
  }

  colour(name: string): string {
    return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
  }
}

export const scheme = new Scheme();
