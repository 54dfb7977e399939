/** Where the app begins: what the page is for stands in it, as JSON. */
import { mount } from "svelte";
import App from "./App.svelte";
import "./app.css";
import { boot } from "./lib/boot.ts";

const place = document.getElementById("app");
if (place) {
  place.replaceChildren(); // what was there is for those without scripts
  for (const style of document.head.querySelectorAll("style")) style.remove(); // and so is its look
  mount(App, { target: place, props: { boot: boot() } });
}
