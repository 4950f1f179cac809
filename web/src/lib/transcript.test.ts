import { describe, expect, it } from "vitest";
import { TranscriptCopy, type Change, type Item } from "./transcript";
import recorded from "./transcript_cases.json";

const cases = recorded as unknown as { frames: Change[][]; items: Item[]; totals: object }[];
const answer = (sequence: number, text: string): Item => ({
  kind: "answer",
  key: `${sequence}.0`,
  run_id: "run_1",
  sequence,
  at: 1,
  text,
});

describe("the copy of a transcript", () => {
  it.each(cases.map((each, at) => [at, each] as const))(
    "equals the fold of the server: case %i",
    (_, { frames, items, totals }) => {
      const copy = new TranscriptCopy();
      for (const change of frames.flat()) copy.apply(change);
      expect(copy.items).toEqual(items);
      expect(copy.totals).toEqual(totals);
    },
  );

  it("can apply the same changes twice", () => {
    for (const { frames, items } of cases) {
      const copy = new TranscriptCopy();
      for (const frame of frames) for (const change of [...frame, ...frame]) copy.apply(change);
      expect(copy.items).toEqual(items);
    }
  });

  it("ignores changes of items that are not loaded, until their page is", () => {
    const copy = new TranscriptCopy();
    copy.open({ items: [answer(5, "five")], sequence: 9, totals: {}, next: "5.0" });
    copy.apply({ change: "item_changed", item: answer(2, "two") });
    copy.apply({ change: "text_appended", key: "2.0", field: "text", offset: 3, text: "!" });
    copy.apply({ change: "item_added", item: answer(12, "twelve") });
    copy.apply({ change: "item_added", item: answer(7, "seven") });
    expect(copy.items.map((item) => item.sequence)).toEqual([5, 7, 12]);
    copy.prepend({ items: [answer(2, "two"), answer(5, "five")], sequence: 12, totals: {}, next: null });
    expect(copy.items.map((item) => item.sequence)).toEqual([2, 5, 7, 12]);
  });
});
