import { describe, expect, it } from "vitest";
import { decodeArguments, listArguments, summarizeCall } from "./call_arguments";

describe("a call as people read it", () => {
  it("is one value alone, or several with their names and the short ones first", () => {
    expect(summarizeCall('{"command": "ls -la\\n  /tmp"}')).toBe("ls -la /tmp");
    expect(summarizeCall(`{"content": "${"x".repeat(90)}", "path": "a.py", "all": true}`)).toBe(
      `path: a.py, all: true, content: ${"x".repeat(90)}`,
    );
    expect(summarizeCall("{}")).toBe("");
  });

  it("is the text itself while it is not a whole object", () => {
    for (const text of ['{"command": "l', "[1, 2]", '"text"', "null", ""]) {
      expect(decodeArguments(text)).toBeNull();
      expect(summarizeCall(text)).toBe(text);
    }
  });

  it("has every value, with several lines apart", () => {
    expect(listArguments({ path: "a", content: "one\ntwo", deep: { x: 1 } })).toEqual([
      { name: "path", text: "a", isLong: false },
      { name: "content", text: "one\ntwo", isLong: true },
      { name: "deep", text: '{\n  "x": 1\n}', isLong: true },
    ]);
  });
});
