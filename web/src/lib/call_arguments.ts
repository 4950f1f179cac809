/** A tool call as people read it: its decoded values instead of JSON. */

export interface ArgumentRow {
  name: string;
  text: string;
  /** Shown below its name, because it has several lines or is long. */
  isLong: boolean;
}

type Values = Record<string, unknown>;
const MAX_DECODED = 200_000;
const SHORT = 80;
const MAX_SUMMARY = 1_000;

/** Return the values of a call; null if they are not an object of a readable size. */
export function decodeArguments(text: string): Values | null {
  if (text.length > MAX_DECODED || !text.trimEnd().endsWith("}")) return null; // also while it is being written
  try {
    const value: unknown = JSON.parse(text);
    return value !== null && typeof value === "object" && !Array.isArray(value) ? (value as Values) : null;
  } catch {
    return null;
  }
}

/** Return a call on one line: a single value alone, several with their names, short ones first. */
export function summarizeCall(text: string): string {
  const values = decodeArguments(text);
  if (values === null) return oneLine(text);
  const rows = listArguments(values);
  const [only] = rows;
  if (only && rows.length === 1) return oneLine(only.text);
  const ordered = [...rows.filter((row) => !row.isLong), ...rows.filter((row) => row.isLong)];
  return oneLine(ordered.map((row) => `${row.name}: ${row.text.slice(0, MAX_SUMMARY)}`).join(", "));
}

/** Return the values in their order, each as text. */
export function listArguments(values: Values): ArgumentRow[] {
  return Object.entries(values).map(([name, value]) => {
    const text = typeof value === "string" ? value : (JSON.stringify(value, null, 2) ?? "");
    return { name, text, isLong: text.length > SHORT || text.includes("\n") };
  });
}

function oneLine(text: string): string {
  return text.slice(0, MAX_SUMMARY).replace(/\s+/g, " ").trim();
}
