import { expect, test } from "vitest";
import { dropDrafts, keepDraft, readDraft } from "./drafts";

class MemoryStorage implements Storage {
  #values = new Map<string, string>();
  get length(): number {
    return this.#values.size;
  }
  key(at: number): string | null {
    return [...this.#values.keys()][at] ?? null;
  }
  getItem(key: string): string | null {
    return this.#values.get(key) ?? null;
  }
  setItem(key: string, value: string): void {
    this.#values.set(key, value);
  }
  removeItem(key: string): void {
    this.#values.delete(key);
  }
  clear(): void {
    this.#values.clear();
  }
}

test("drafts are kept per session and dropped together", () => {
  const store = new MemoryStorage();
  store.setItem("theme", "dark");
  keepDraft("", "new", store);
  keepDraft("ses_1", "one", store);
  expect([readDraft("", store), readDraft("ses_1", store), readDraft("ses_2", store)]).toEqual(["new", "one", ""]);
  keepDraft("ses_1", "", store);
  expect(readDraft("ses_1", store)).toBe("");
  dropDrafts(store);
  expect([readDraft("", store), store.getItem("theme")]).toEqual(["", "dark"]);
});

test("only the latest drafts are kept", () => {
  const store = new MemoryStorage();
  for (let at = 0; at < 60; at++) keepDraft(`ses_${at}`, "text", store, at);
  expect([readDraft("ses_9", store), readDraft("ses_10", store), store.length]).toEqual(["", "text", 50]);
});

test("a draft that another version wrote is ignored", () => {
  const store = new MemoryStorage();
  store.setItem("draft:ses_1", "not JSON");
  expect(readDraft("ses_1", store)).toBe("");
});
