/** The changes of files that a tool call asks for, each as the text before and after it. */

export interface FileChange {
  /** What happens to which file; empty if the path is shown besides. */
  title: string;
  before: string;
  after: string;
}

type Values = Record<string, unknown>;
const SECTION = /^\*\*\* (Add|Update|Delete) File: (.+)$/;
const MOVE = /^\*\*\* Move to: (.+)$/;
const TITLES = { Add: "Add", Update: "Edit", Delete: "Delete" } as const;

/** The arguments of each tool that the changes show. */
const SHOWN: Record<string, string[]> = {
  edit_file: ["old", "new", "edits"],
  write_file: ["content"],
  apply_patch: ["input"],
};

/** Return the arguments that the changes of a call show. */
export function listShownArguments(tool: string): string[] {
  return SHOWN[tool] ?? [];
}

/** Return the changes of a call; none for a call that changes no file, or whose arguments are not valid. */
export function findChanges(tool: string, values: Values): FileChange[] {
  if (tool === "edit_file") return findEdits(values);
  if (tool === "write_file")
    return typeof values["content"] === "string" ? [{ title: "", before: "", after: values["content"] }] : [];
  return tool === "apply_patch" && typeof values["input"] === "string" ? readPatch(values["input"]) : [];
}

function findEdits(values: Values): FileChange[] {
  const listed: unknown[] = Array.isArray(values["edits"]) && values["edits"].length ? values["edits"] : [values];
  const changes: FileChange[] = [];
  for (const edit of listed) {
    const { old: before, new: after } = (edit ?? {}) as Values;
    if (typeof before !== "string" || typeof after !== "string") return [];
    changes.push({ title: "", before, after });
  }
  return changes;
}

/** Return the changes of a patch, one for each hunk; none if it is not valid. */
function readPatch(text: string): FileChange[] {
  const lines = text.replaceAll("\r\n", "\n").split("\n");
  const begin = lines.indexOf("*** Begin Patch");
  const end = lines.lastIndexOf("*** End Patch");
  if (begin < 0 || end < begin) return [];
  const changes: FileChange[] = [];
  let title = "";
  let before: string[] = [];
  let after: string[] = [];
  const close = (): void => {
    if (title || before.length || after.length)
      changes.push({ title, before: before.join("\n"), after: after.join("\n") });
    title = "";
    before = [];
    after = [];
  };
  for (const line of lines.slice(begin + 1, end)) {
    const section = SECTION.exec(line);
    const move = MOVE.exec(line);
    if (section) {
      close();
      title = `${TITLES[section[1] as keyof typeof TITLES]} ${section[2]}`;
    } else if (move) title = `${title.replace(/^Edit /, "Move ")} → ${move[1]}`;
    else if (line.startsWith("@@")) {
      if (before.length || after.length) close();
    } else if (line === "*** End of File") continue;
    else if (line.startsWith("+")) after.push(line.slice(1));
    else if (line.startsWith("-")) before.push(line.slice(1));
    else {
      const kept = line.startsWith(" ") ? line.slice(1) : line;
      before.push(kept);
      after.push(kept);
    }
  }
  close();
  return changes;
}
