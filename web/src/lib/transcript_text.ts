/** The transcript of a run as plain text: for searching in it, and as a file. */

import { shortId } from "./format";
import type { Item } from "./transcript";
import { texts } from "../texts";

/** Return all text of an item that a reader may look for. */
export function textOf(item: Item): string {
  switch (item.kind) {
    case "call":
      return [item.name, item.arguments, item.result ?? item.output, item.note].filter(Boolean).join("\n");
    case "approval":
      return [item.name, item.arguments, item.reason, item.note].filter(Boolean).join("\n");
    case "question":
      return [item.question, item.answer].filter(Boolean).join("\n");
    case "plan":
      return item.steps.map((step) => step.text).join("\n");
    case "child":
      return [item.agent, item.child_run_id, item.reason].filter(Boolean).join("\n");
    case "note":
      return [item.text, item.details].filter(Boolean).join("\n");
    case "end":
      return [item.outcome, item.reason, item.next, item.text].filter(Boolean).join("\n");
    default:
      return item.text;
  }
}

export interface Hit {
  item: Item;
  before: string;
  found: string;
  after: string;
}

const AROUND = 80;

/** Return the items that contain a text, each with the first place where it is. */
export function findHits(items: readonly Item[], wanted: string): Hit[] {
  const needle = wanted.trim().toLowerCase();
  if (!needle) return [];
  return items.flatMap((item) => {
    const text = textOf(item);
    const at = text.toLowerCase().indexOf(needle);
    if (at < 0) return [];
    const start = Math.max(0, at - AROUND);
    const end = at + needle.length;
    const before = (start ? "…" : "") + text.slice(start, at);
    const after = text.slice(end, end + AROUND) + (end + AROUND < text.length ? "…" : "");
    return [{ item, before, found: text.slice(at, end), after }];
  });
}

/** Return what an item is, for a list of items. */
export function nameOf(item: Item): string {
  const t = texts.run;
  return item.kind === "call" || item.kind === "approval" ? item.name : t.itemKinds[item.kind];
}

function fence(text: string, language = ""): string {
  const longest = Math.max(2, ...[...text.matchAll(/`+/g)].map((found) => found[0].length));
  const marks = "`".repeat(longest + 1);
  return `${marks}${language}\n${text}\n${marks}`;
}

function writeItem(item: Item): string {
  const t = texts.run;
  const at = new Date(item.at * 1000).toISOString();
  switch (item.kind) {
    case "message":
      return `## ${t.user} · ${at}\n\n${item.text}`;
    case "answer":
      return `## ${t.assistant} · ${at}\n\n${item.text}`;
    case "call": {
      const result = item.result ?? item.output ?? "";
      return [`### ${item.name} · ${item.state ?? ""}`, fence(item.arguments ?? "", "json"), result && fence(result)]
        .filter(Boolean)
        .join("\n\n");
    }
    case "child":
      return `### ${t.child} ${shortId(item.child_run_id)} · ${item.agent} · ${item.outcome ?? item.state ?? ""}`;
    default:
      return `### ${nameOf(item)}\n\n${textOf(item)}`;
  }
}

interface About {
  run_id: string;
  agent: string;
  message?: string;
}

/** Return the transcript as Markdown. */
export function writeMarkdown(run: About, items: readonly Item[]): string {
  const title = (run.message ?? "").split("\n")[0]?.slice(0, 200) ?? "";
  return [`# ${title || texts.run.title}`, `${run.agent} · ${run.run_id}`, ...items.map(writeItem), ""].join("\n\n");
}
