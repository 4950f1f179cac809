import { describe, expect, it } from "vitest";
import { parseInline, parseMarkdown, revealHidden, safeHref, stripMarkdown, type Block, type Inline } from "./markdown";

const plain = (parts: Inline[]): string =>
  parts.map((part) => ("text" in part ? part.text : "children" in part ? plain(part.children) : "\n")).join("");

describe("markdown", () => {
  it("parses the blocks that models write", () => {
    const kinds = parseMarkdown(
      "# Title\n\ntext *a*\n\n- one\n- two\n\n1. x\n\n> said\n\n```py\ncode\n```\n\n|a|b|\n|-|-|\n|1|2|\n\n---",
    ).map((block) => block.kind);
    expect(kinds).toEqual(["heading", "paragraph", "list", "list", "quote", "code", "table", "rule"]);
  });

  it("keeps the text of markers without a partner", () => {
    expect(plain(parseInline("2 * 3 ** 4 _ 5 ` 6 [x"))).toBe("2 * 3 ** 4 _ 5 ` 6 [x");
  });

  it("strips the marks from an excerpt, wherever it is cut", () => {
    expect(
      stripMarkdown(
        "…ings ## Findings The **longest** module is `decide.py`. See the [guide](https://example.com/guide) for **wh…",
      ),
    ).toBe("…ings Findings The longest module is decide.py. See the guide for wh…");
    expect(stripMarkdown("| module | lines | |---|---| | decide.py | 310 | ```python def longest(): ```")).toBe(
      "module · lines · decide.py · 310 · def longest():",
    );
    expect(stripMarkdown("a | b, 2 * 3, snake_case and C# stay")).toBe("a | b, 2 * 3, snake_case and C# stay");
    expect(stripMarkdown("[a](javascript:x) <img src=x onerror=y>")).toBe("a (javascript:x) <img src=x onerror=y>");
    const began = Date.now();
    stripMarkdown("*".repeat(3000) + "[".repeat(3000) + "|-".repeat(9000) + "---|".repeat(9000) + "# ".repeat(9000));
    expect(Date.now() - began).toBeLessThan(500);
  });

  it("nests lists and keeps code in an unclosed fence", () => {
    const [list] = parseMarkdown("- a\n  - b\n  - c\n- d") as [Extract<Block, { kind: "list" }>];
    expect(list.items.length).toBe(2);
    expect(list.items[0]?.blocks[1]?.kind).toBe("list");
    expect(parseMarkdown("```\nlet x")).toEqual([{ kind: "code", language: "", text: "let x" }]);
  });

  it("keeps alignments of columns, markup in every column and boxes of lists", () => {
    const [table, list] = parseMarkdown(
      "|a|b|c|d|e|f|g|h|\n|:-|:-:|-:|-|-|-|-|-|\n|1|2|3|4|5|6|7|**8**|\n\n- [ ] a\n- [x] b\n- c",
    ) as [Extract<Block, { kind: "table" }>, Extract<Block, { kind: "list" }>];
    expect(table.alignments.slice(0, 4)).toEqual(["left", "center", "right", ""]);
    expect(table.rows[0]?.[7]?.[0]?.kind).toBe("strong");
    expect(list.items.map((item) => item.isChecked)).toEqual([false, true, null]);
    expect(list.items[0]?.blocks).toEqual([{ kind: "paragraph", children: [{ kind: "text", text: "a" }] }]);
  });

  it("offers only links to the web and to mail", () => {
    for (const bad of [
      "javascript:alert(1)",
      "JaVaScRiPt:x",
      "java\tscript:alert(1)",
      "data:text/html,x",
      "file:///etc/passwd",
      "//evil.example",
      "/v1/tokens",
      "vbscript:x",
      "",
    ]) {
      expect(safeHref(bad)?.startsWith("http") ?? false).toBe(false);
    }
    expect(safeHref("https://example.com/a")).toBe("https://example.com/a");
    expect(parseInline("[a](javascript:x)")).toEqual([{ kind: "text", text: "a (javascript:x)" }]);
  });

  it("shows where a link goes and never loads an image", () => {
    const [link] = parseInline("[good.example](https://evil.example/login)") as [Extract<Inline, { kind: "link" }>];
    expect(link.host).toBe("evil.example");
    const [image] = parseInline("![cat](https://evil.example/cat.png)") as [Extract<Inline, { kind: "link" }>];
    expect(image.kind).toBe("link");
    expect(plain(image.children)).toBe("image: cat");
  });

  it("makes characters that hide or reorder others visible", () => {
    expect(revealHidden("a\u202eb\u200b\u0007")).toBe("a⟨U+202E⟩b⟨U+200B⟩⟨U+0007⟩");
  });

  it("takes time in proportion to the length", () => {
    for (const hostile of [
      "*".repeat(50_000),
      "[".repeat(50_000),
      "`".repeat(50_001),
      "> ".repeat(20_000),
      "- ".repeat(20_000),
      "](".repeat(30_000),
      "_a".repeat(30_000),
      "|".repeat(50_000) + "\n" + "-|".repeat(1000),
    ]) {
      const began = performance.now();
      parseMarkdown(hostile);
      expect(performance.now() - began).toBeLessThan(5000);
    }
  });

  it("shows characters that hide text, and leaves emoji and scripts as they are", () => {
    expect(revealHidden("a\u{e0073}b")).toBe("a⟨U+E0073⟩b");
    expect(revealHidden("a\u202eb\u200bc\u0007")).toBe("a⟨U+202E⟩b⟨U+200B⟩c⟨U+0007⟩");
    expect(revealHidden("\u3164\ufe01")).toBe("⟨U+3164⟩⟨U+FE01⟩");
    const kept = ["👩‍👩‍👧 ❤️ 1️⃣", "می‌خواهم", "line\n\ttab", "naïve – “ok”"];
    for (const fine of kept) expect(revealHidden(fine)).toBe(fine);
  });
});
