/** Where the app begins: what the page is for stands in it, as JSON. */
import { mount } from "svelte";
import App from "./App.svelte";
import "./app.css";
import { boot } from "./lib/boot.ts";
import { atTheDoor, enter, whenLetIn } from "./lib/entrance.ts";

async function begin(place: HTMLElement): Promise<void> {
  const told = boot();
  const known = told.serves !== "panel" || (await enter());
  const reload = (): void => location.reload();
  if (!known) whenLetIn(reload);
  // The address may be opened where a page of ours is already: then only what stands behind # changes.
  if (told.serves === "panel") window.addEventListener("hashchange", () => void (atTheDoor() && enter().then(reload)));
  place.replaceChildren(); // what was there is for those without scripts
  for (const style of document.head.querySelectorAll("style")) style.remove(); // and so is its look
  mount(App, { target: place, props: { boot: told, known } });
}

const place = document.getElementById("app");
if (place) void begin(place);
