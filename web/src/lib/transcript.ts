/** A copy of the transcript of a run, kept by applying its changes. It interprets no event. */

import type { Schemas } from "./api.svelte";

export type Item = Schemas["TranscriptPage"]["items"][number];
export type Totals = Schemas["RunTotals"];
export type Change = Schemas["TranscriptChanges"]["changes"][number];
type Appended = Extract<Change, { change: "text_appended" }>;
/** The server leaves out fields that have their default. */
type Growing = { text?: string; arguments?: string; output?: string; output_start?: number };

export class TranscriptCopy {
  items: readonly Item[] = [];
  totals: Totals = {};
  /** The last durable event that is included. */
  sequence = 0;
  /** The cursor of the items before these; null: there are none. */
  earlier: string | null = null;
  /** Characters of the texts that grow. JavaScript counts other units. */
  #lengths = new Map<string, number>();

  /** Begin with the latest items. */
  open(page: Schemas["TranscriptPage"]): void {
    this.items = page.items;
    this.totals = page.totals;
    this.sequence = page.sequence;
    this.earlier = page.next ?? null;
    this.#lengths.clear();
  }

  /** Put a page of earlier items before these. */
  prepend(page: Schemas["TranscriptPage"]): void {
    const known = new Set(this.items.map((item) => item.key));
    this.items = [...page.items.filter((item) => !known.has(item.key)), ...this.items];
    this.earlier = page.next ?? null;
  }

  apply(change: Change): void {
    switch (change.change) {
      case "item_added":
      case "item_changed":
        this.#put(change.item);
        break;
      case "text_appended":
        this.#append(change);
        break;
      case "live_replaced":
        this.items = this.items.filter((item) => !isLive(item));
        for (const item of change.items) this.#put(item);
        break;
      case "totals_changed":
        this.totals = change.totals;
    }
  }

  #put(item: Item): void {
    for (const field of ["text", "arguments", "output"]) this.#lengths.delete(`${item.key} ${field}`);
    const at = this.items.findLastIndex((each) => each.key === item.key);
    if (at >= 0) {
      this.items = this.items.with(at, item);
      return;
    }
    const before = this.items.findLastIndex((each) => isBefore(each, item));
    if (before < 0 && this.earlier !== null) return; // it belongs to a page that is not loaded
    this.items = this.items.toSpliced(before + 1, 0, item);
  }

  #append({ key, field, offset, text }: Appended): void {
    const at = this.items.findLastIndex((item) => item.key === key);
    const item = this.items[at];
    if (!item) return;
    const growing = item as Growing;
    const known = growing[field] ?? "";
    const name = `${key} ${field}`;
    const place = Math.max(0, offset - (field === "output" ? (growing.output_start ?? 0) : 0));
    const length = this.#lengths.get(name) ?? [...known].length;
    const kept = place === length ? known : [...known].slice(0, place).join("");
    this.items = this.items.with(at, { ...item, [field]: kept + text } as Item);
    this.#lengths.set(name, Math.min(place, length) + [...text].length);
  }
}

function isLive(item: Item): boolean {
  return "state" in item && item.state === "writing";
}

function isBefore(one: Item, other: Item): boolean {
  return one.sequence < other.sequence || (one.sequence === other.sequence && (one.part ?? 0) < (other.part ?? 0));
}
