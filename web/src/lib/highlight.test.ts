import { describe, expect, it } from "vitest";
import { highlight } from "./highlight";

const marked = (code: string, language: string) =>
  highlight(code, language)
    .filter((token) => token.kind !== "plain")
    .map((token) => `${token.kind}: ${token.text}`);

describe("colours of code", () => {
  it("mark comments, texts, numbers and keywords", () => {
    expect(marked('def f(x):  # why\n    return "a # b" + 12', "python")).toEqual([
      "keyword: def",
      "comment: # why",
      "keyword: return",
      'text: "a # b"',
      "number: 12",
    ]);
    expect(marked("SELECT 1 -- all", "sql")).toEqual(["keyword: SELECT", "number: 1", "comment: -- all"]);
    expect(marked("+new\n-old\n same", "diff")).toEqual(["added: +new\n", "removed: -old\n"]);
    expect(marked("def f(): pass", "unknown")).toEqual([]);
  });

  it("change nothing, and take little time whatever the code is", () => {
    for (const code of [
      '"'.repeat(9999),
      "/*".repeat(9999),
      "`'\"".repeat(5000),
      "\\".repeat(9999),
      "a.b-1e+".repeat(2500),
    ])
      for (const language of ["python", "ts", "sql", "json", "sh", "go"]) {
        const began = Date.now();
        const tokens = highlight(code, language);
        expect(tokens.map((token) => token.text).join("")).toBe(code);
        expect(Date.now() - began).toBeLessThan(500);
      }
  });
});
