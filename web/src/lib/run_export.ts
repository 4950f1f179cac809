/** Runs as files: CSV for spreadsheets, JSON lines for programs. */

import type { Schemas } from "./api.svelte";

type Run = Schemas["RunView"];

const COLUMNS = [
  "run_id",
  "session_id",
  "parent_run_id",
  "agent",
  "resolved_model",
  "owner",
  "status",
  "outcome",
  "reason",
  "created_at",
  "duration_ms",
  "steps",
  "tool_calls",
  "tokens",
  "cost",
  "credits",
  "unpriced_calls",
  "score",
  "tags",
  "summary",
] as const satisfies readonly (keyof Run)[];

/** Return a cell. A text that a spreadsheet would take for a formula begins with an apostrophe. */
function writeCell(value: unknown): string {
  if (value === null || value === undefined) return "";
  let text = Array.isArray(value) ? value.join(" ") : String(value as string | number | boolean);
  if (typeof value !== "number" && /^[=+\-@\t\r]/.test(text)) text = `'${text}`;
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
}

export function writeCsv(runs: readonly Run[]): string {
  const rows = runs.map((run) => COLUMNS.map((name) => writeCell(run[name])).join(","));
  return [COLUMNS.join(","), ...rows, ""].join("\r\n");
}

export function writeJsonLines(runs: readonly Run[]): string {
  return runs.map((run) => `${JSON.stringify(run)}\n`).join("");
}
