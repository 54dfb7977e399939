/** Doing something again and again, while the page can be seen. */

/** Returns how to end it. A slow answer is waited for: never two at once. */
export function every(seconds: number, act: () => Promise<void>): () => void {
  let [ended, busy] = [false, false];
  const step = async (): Promise<void> => {
    if (ended || busy || document.hidden) return;
    busy = true;
    try {
      await act();
    } finally {
      busy = false;
    }
  };
  queueMicrotask(() => void step()); // not within whoever began it: what it reads is not what they depend on
  const timer = window.setInterval(() => void step(), 1000 * seconds);
  const seen = (): void => void step();
  document.addEventListener("visibilitychange", seen);
  return () => {
    ended = true;
    window.clearInterval(timer);
    document.removeEventListener("visibilitychange", seen);
  };
}

/** Never two at once, whoever asks; asked meanwhile, it is done once more. */
export function inTurn(act: () => Promise<void>): () => Promise<void> {
  let [busy, again] = [false, false];
  return async () => {
    again = true;
    if (busy) return;
    busy = true;
    try {
      while (again) {
        again = false;
        await act();
      }
    } finally {
      busy = false;
    }
  };
}
