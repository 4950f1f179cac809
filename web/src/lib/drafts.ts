/** Messages that were typed and not sent, one for each session. This browser keeps them until they are sent or the
 * user signs out. */

const PREFIX = "draft:";
const MAX_DRAFTS = 50;
const MAX_CHARACTERS = 100_000;

interface Draft {
  text: string;
  at: number;
}

/** Return what was typed for a session ("" for a new one). */
export function readDraft(session: string, store: Storage = localStorage): string {
  return parse(store.getItem(PREFIX + session))?.text ?? "";
}

/** Keep what is typed for a session. An empty text, or one that is too long to keep, drops the draft. */
export function keepDraft(session: string, text: string, store: Storage = localStorage, now = Date.now()): void {
  const key = PREFIX + session;
  if (!text || text.length > MAX_CHARACTERS) {
    store.removeItem(key);
    return;
  }
  try {
    store.setItem(key, JSON.stringify({ text, at: now } satisfies Draft));
  } catch {
    // the store is full: the text stays in the box
  }
  const kept = keys(store).sort((one, other) => age(store, other) - age(store, one));
  for (const oldest of kept.slice(MAX_DRAFTS)) store.removeItem(oldest);
}

/** Forget all drafts. */
export function dropDrafts(store: Storage = localStorage): void {
  for (const key of keys(store)) store.removeItem(key);
}

function keys(store: Storage): string[] {
  return Array.from({ length: store.length }, (_, at) => store.key(at) ?? "").filter((key) => key.startsWith(PREFIX));
}

function age(store: Storage, key: string): number {
  return parse(store.getItem(key))?.at ?? 0;
}

function parse(value: string | null): Draft | null {
  try {
    return value === null ? null : (JSON.parse(value) as Draft);
  } catch {
    return null;
  }
}
