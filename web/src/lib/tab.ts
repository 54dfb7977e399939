/** What this tab remembers, so that a reload loses nothing. */

export function recall<T>(key: string): T | null {
  try {
    return JSON.parse(sessionStorage.getItem(key) ?? "null") as T | null;
  } catch {
    return null;
  }
}

export function remember(key: string, value: unknown): void {
  try {
    sessionStorage.removeItem(key); // where there is no room, nothing is better than what was before
    sessionStorage.setItem(key, JSON.stringify(value));
  } catch {
    // A full or forbidden store costs only the memory of a reload.
  }
}
