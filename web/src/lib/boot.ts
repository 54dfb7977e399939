/** What the server says this page is for. */

export type Boot =
  | { serves: "panel"; version: string }
  | { serves: "job"; version: string; api: string }
  | { serves: "matchmaker"; version: string; page: "front" | "job"; code?: string };

export function boot(): Boot {
  const told = document.getElementById("boot")?.textContent;
  return told ? (JSON.parse(told) as Boot) : { serves: "panel", version: "" };
}
