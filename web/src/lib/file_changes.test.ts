import { describe, expect, it } from "vitest";
import { findChanges } from "./file_changes";

const PATCH = [
  "*** Begin Patch",
  "*** Update File: a.py",
  "@@ def f():",
  " kept",
  "-old",
  "+new",
  "@@",
  "-x",
  "+y",
  "*** Update File: b.py",
  "*** Move to: c.py",
  "*** Add File: d.py",
  "+one",
  "+two",
  "*** Delete File: e.py",
  "*** End Patch",
].join("\n");

describe("the changes of a call", () => {
  it("are those of an edit, or of several", () => {
    expect(findChanges("edit_file", { path: "a", old: "1", new: "2" })).toEqual([
      { title: "", before: "1", after: "2" },
    ]);
    const edits = [
      { old: "1", new: "2" },
      { old: "3", new: "" },
    ];
    expect(findChanges("edit_file", { path: "a", edits })).toEqual([
      { title: "", before: "1", after: "2" },
      { title: "", before: "3", after: "" },
    ]);
  });

  it("are the whole content of a file that is written", () => {
    expect(findChanges("write_file", { path: "a", content: "x\n" })).toEqual([{ title: "", before: "", after: "x\n" }]);
  });

  it("are the hunks of a patch, with deletions and moves", () => {
    expect(findChanges("apply_patch", { input: PATCH })).toEqual([
      { title: "Edit a.py", before: "kept\nold", after: "kept\nnew" },
      { title: "", before: "x", after: "y" },
      { title: "Move b.py → c.py", before: "", after: "" },
      { title: "Add d.py", before: "", after: "one\ntwo" },
      { title: "Delete e.py", before: "", after: "" },
    ]);
  });

  it("are none for other calls and invalid arguments", () => {
    expect(findChanges("other", { old: "1", new: "2" })).toEqual([]);
    expect(findChanges("edit_file", { old: 1, new: "2" })).toEqual([]);
    expect(findChanges("edit_file", { edits: [null] })).toEqual([]);
    expect(findChanges("apply_patch", { input: "*** Begin Patch" })).toEqual([]);
  });
});
