/** Asking again every few seconds, but only while somebody looks. */

/** Calls `ask` now and again after each `everyMs`; hidden pages wait. Returns how to stop it. */
export function poll(ask: () => Promise<void>, everyMs: number): () => void {
  let timer = 0;
  let asking = false;
  let over = false;
  const again = async (): Promise<void> => {
    window.clearTimeout(timer);
    if (over || asking || document.hidden) return;
    asking = true;
    await ask();
    asking = false;
    if (!over) timer = window.setTimeout(() => void again(), everyMs);
  };
  const seen = (): void => void again();
  document.addEventListener("visibilitychange", seen);
  void again();
  return () => {
    over = true;
    window.clearTimeout(timer);
    document.removeEventListener("visibilitychange", seen);
  };
}
