/** The time, for those who show how long ago something was: they look again every ten seconds. */
import { createSubscriber } from "svelte/reactivity";

const TICK_MS = 10_000;

const follow = createSubscriber((tick) => {
  const timer = setInterval(tick, TICK_MS);
  return () => clearInterval(timer);
});

/** Seconds since 1970. */
export function clock(): number {
  follow();
  return Date.now() / 1000;
}
