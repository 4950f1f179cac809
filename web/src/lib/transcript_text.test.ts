import { describe, expect, it } from "vitest";
import type { Item } from "./transcript";
import { findHits, writeMarkdown } from "./transcript_text";

const place = (sequence: number) => ({ key: `${sequence}.0`, run_id: "run_1", sequence, at: 0 });
const items = [
  { kind: "message", ...place(1), text: "Which is the longest?" },
  {
    kind: "call",
    ...place(2),
    call_id: "c",
    name: "bash",
    arguments: '{"command":"wc"}',
    state: "done",
    result: "```\n310 DECIDE.py",
  },
  { kind: "answer", ...place(3), text: "`decide.py` has 310 lines." },
] as unknown as Item[];

describe("the text of a transcript", () => {
  it("is found in messages, arguments and results, whatever its case", () => {
    const hits = findHits(items, " decide.PY ");
    expect(hits.map((hit) => [hit.item.kind, hit.found])).toEqual([
      ["call", "DECIDE.py"],
      ["answer", "decide.py"],
    ]);
    expect(hits[1]?.after).toBe("` has 310 lines.");
    expect(findHits(items, "wc").length).toBe(1);
    expect(findHits(items, "  ")).toEqual([]);
  });

  it("becomes Markdown in which no result ends its own fence", () => {
    const text = writeMarkdown({ run_id: "run_1", agent: "default", message: "Which?\nmore" }, items);
    expect(text).toMatch(/^# Which\?\n\ndefault · run_1\n\n## User/);
    expect(text).toContain("````\n```\n310 DECIDE.py\n````");
  });
});
