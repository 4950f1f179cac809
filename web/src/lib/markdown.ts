/**
 * Markdown of models and tools, as a tree. The text is untrusted: nothing here or in the component that shows the tree
 * ever becomes HTML, images are never loaded, and every step takes time in proportion to the length of the text.
 */

export type Inline =
  | { kind: "text"; text: string }
  | { kind: "code"; text: string }
  | { kind: "strong" | "emphasis" | "strike"; children: Inline[] }
  | { kind: "link"; href: string; host: string; children: Inline[] }
  | { kind: "break" };

export type Block =
  | { kind: "paragraph"; children: Inline[] }
  | { kind: "heading"; level: number; children: Inline[] }
  | { kind: "code"; language: string; text: string }
  | { kind: "quote"; children: Block[] }
  | { kind: "list"; ordered: boolean; start: number; items: ListItem[] }
  | { kind: "table"; head: Inline[][]; rows: Inline[][][]; alignments: Alignment[] }
  | { kind: "rule" };

export interface ListItem {
  blocks: Block[];
  /** Whether its box is checked. Null: it has none. */
  isChecked: boolean | null;
}

export type Alignment = "" | "left" | "center" | "right";

const MAX_DEPTH = 6;
const MAX_CELLS = 4000;
/** Characters that hide, reorder or spell out what no reader sees: the same as the server's `inert_text` finds. */
const HIDDEN_RANGES = [
  String.raw`\p{Cc}\p{Cf}\p{Co}\p{Cs}\p{Zl}\p{Zp}\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2065\u2800\u3164`,
  String.raw`\ufe00-\ufe0f\uffa0\ufff0-\ufff8\u{e0000}-\u{e0fff}`,
];
// eslint-disable-next-line no-misleading-character-class -- each range stands alone
const HIDDEN = new RegExp(`[${HIDDEN_RANGES.join("")}]`, "gu");
/** White space, and signs before numbers, which are visible. */
const SEEN = /[\n\r\t\u0600-\u0605\u06dd\u070f\u0890\u0891\u08e2]/;
const JOINERS = "\u200c\u200d\ufe0e\ufe0f";
/** The scripts whose letters need joiners. */
const JOINED_SCRIPTS = [
  "Arabic",
  "Syriac",
  "Mongolian",
  "Devanagari",
  "Bengali",
  "Tamil",
  "Telugu",
  "Kannada",
  "Malayalam",
  "Sinhala",
];
const JOINED_RANGES = [
  String.raw`\p{Extended_Pictographic}\p{Emoji_Modifier}\u20e3#*0-9\ufe0f`,
  ...JOINED_SCRIPTS.map((script) => String.raw`\p{Script=${script}}`),
];
const JOINED = new RegExp(`[${JOINED_RANGES.join("")}]$`, "u");

/** Return a text with characters that hide or reorder others made visible. Emoji and scripts keep their joiners. */
export function revealHidden(text: string): string {
  return text.replace(HIDDEN, (found, at: number) => {
    if (SEEN.test(found)) return found;
    if (JOINERS.includes(found) && JOINED.test(text.slice(Math.max(0, at - 2), at))) return found;
    return `⟨U+${hex(found)}⟩`;
  });
}

function hex(text: string): string {
  return (text.codePointAt(0) ?? 0).toString(16).toUpperCase().padStart(4, "0");
}

export function parseMarkdown(source: string, depth = 0): Block[] {
  const lines = source.replace(/\r\n?/g, "\n").split("\n");
  return depth > MAX_DEPTH
    ? [{ kind: "paragraph", children: [{ kind: "text", text: source }] }]
    : parseBlocks(lines, depth);
}

function parseBlocks(lines: string[], depth: number): Block[] {
  const blocks: Block[] = [];
  let at = 0;
  while (at < lines.length) {
    const line = lines[at] ?? "";
    const trimmed = line.trim();
    if (!trimmed) {
      at++;
      continue;
    }
    const fence = /^ {0,3}(`{3,}|~{3,})\s*([\w+#.-]{0,40})/.exec(line);
    if (fence) {
      const end = findFence(lines, at + 1, fence[1] ?? "```");
      blocks.push({ kind: "code", language: fence[2] ?? "", text: lines.slice(at + 1, end).join("\n") });
      at = end + 1;
      continue;
    }
    const heading = /^ {0,3}(#{1,6})\s+(.*)$/.exec(line);
    if (heading) {
      blocks.push({ kind: "heading", level: heading[1]?.length ?? 1, children: parseInline(heading[2] ?? "") });
      at++;
      continue;
    }
    if (/^ {0,3}([-*_])(\s*\1){2,}\s*$/.test(line.slice(0, 200))) {
      blocks.push({ kind: "rule" });
      at++;
      continue;
    }
    if (trimmed.startsWith(">")) {
      let end = at;
      while (end < lines.length && (lines[end] ?? "").trim().startsWith(">")) end++;
      const inner = lines.slice(at, end).map((each) => each.trim().replace(/^> ?/, ""));
      blocks.push({ kind: "quote", children: parseMarkdown(inner.join("\n"), depth + 1) });
      at = end;
      continue;
    }
    const list = listMarker(line);
    if (list) {
      const [block, next] = parseList(lines, at, list, depth);
      blocks.push(block);
      at = next;
      continue;
    }
    const table = parseTable(lines, at);
    if (table) {
      blocks.push(table[0]);
      at = table[1];
      continue;
    }
    let end = at + 1;
    while (end < lines.length && isParagraphLine(lines[end] ?? "")) end++;
    blocks.push({ kind: "paragraph", children: parseInline(lines.slice(at, end).join("\n").trim()) });
    at = end;
  }
  return blocks;
}

function isParagraphLine(line: string): boolean {
  const trimmed = line.trim();
  return trimmed !== "" && !/^(`{3,}|~{3,}|#{1,6}\s|>)/.test(trimmed) && !listMarker(line);
}

function findFence(lines: string[], from: number, fence: string): number {
  for (let at = from; at < lines.length; at++) if ((lines[at] ?? "").trim().startsWith(fence)) return at;
  return lines.length;
}

interface Marker {
  indent: number;
  width: number;
  ordered: boolean;
  start: number;
}

function listMarker(line: string): Marker | null {
  const found = /^( {0,12})([-*+]|\d{1,9}[.)])(\s+|$)/.exec(line);
  if (!found) return null;
  const mark = found[2] ?? "-";
  const ordered = /\d/.test(mark);
  return { indent: (found[1] ?? "").length, width: found[0].length, ordered, start: ordered ? parseInt(mark, 10) : 1 };
}

function parseList(lines: string[], from: number, first: Marker, depth: number): [Block, number] {
  const items: ListItem[] = [];
  let at = from;
  while (at < lines.length) {
    const marker = listMarker(lines[at] ?? "");
    if (!marker || marker.indent < first.indent || marker.ordered !== first.ordered) break;
    const item = [(lines[at] ?? "").slice(marker.width)];
    at++;
    while (at < lines.length) {
      const line = lines[at] ?? "";
      const next = listMarker(line);
      const indent = line.length - line.trimStart().length;
      if (line.trim() === "") {
        const after = lines[at + 1] ?? "";
        if (after.trim() === "" || after.length - after.trimStart().length <= first.indent) break;
        item.push("");
      } else if (indent > first.indent) item.push(line.slice(Math.min(indent, marker.width)));
      else if (next || !isParagraphLine(line)) break;
      else item.push(line);
      at++;
    }
    const box = /^\[([ xX])\]\s+/.exec(item[0] ?? "");
    if (box) item[0] = (item[0] ?? "").slice(box[0].length);
    const blocks = parseMarkdown(item.join("\n"), depth + 1);
    items.push({ blocks, isChecked: box ? box[1] !== " " : null });
    while (at < lines.length && (lines[at] ?? "").trim() === "" && listMarker(lines[at + 1] ?? "")) at++;
  }
  return [{ kind: "list", ordered: first.ordered, start: first.start, items }, at];
}

function parseTable(lines: string[], at: number): [Block, number] | null {
  const first = lines[at] ?? "";
  const rule = (lines[at + 1] ?? "").slice(0, 2000);
  if (!first.includes("|") || !rule.includes("-") || !/^[\s|:-]+$/.test(rule)) return null;
  const columns = cells(first);
  const rows: Inline[][][] = [];
  let end = at + 2;
  while (end < lines.length && (lines[end] ?? "").includes("|") && rows.length * columns.length < MAX_CELLS) {
    rows.push(
      cells(lines[end] ?? "")
        .slice(0, columns.length)
        .map((cell) => parseInline(cell)),
    );
    end++;
  }
  const head = columns.map((cell) => parseInline(cell));
  return [{ kind: "table", head, rows, alignments: cells(rule).map(readAlignment) }, end];
}

function readAlignment(cell: string): Alignment {
  const [left, right] = [cell.startsWith(":"), cell.endsWith(":")];
  return left && right ? "center" : right ? "right" : left ? "left" : "";
}

function cells(line: string): string[] {
  return line
    .trim()
    .replace(/^\||\|$/g, "")
    .split("|")
    .map((cell) => cell.trim());
}

/** Return an excerpt on one line without the marks of Markdown. It may begin and end anywhere. */
export function stripMarkdown(excerpt: string): string {
  const plain = excerpt
    .replace(/`{3,}[\w+#.-]{0,40}(?=\s|$)/g, "")
    .replace(/\|?(?:[ :]*-{3,}[ :]*\|)+(?:[ :]*-{3,}[ :]*)?/g, "|")
    .replace(/(^|[\s…])#{1,6}\s+/g, "$1")
    .replace(/(^|…)>\s+/g, "$1");
  const cells = plain.split(/(?:^|\s)\|(?=\s|\||$)/);
  const rows =
    cells.length > 2
      ? cells
          .map((cell) => cell.replace(/^\|+|\|+$/g, "").trim())
          .filter(Boolean)
          .join(" · ")
      : plain;
  return flatten(parseInline(rows))
    .replace(/\*\*|~~/g, "")
    .replace(/\s+/g, " ")
    .trim();
}

function flatten(parts: Inline[]): string {
  return parts.map((part) => ("text" in part ? part.text : "children" in part ? flatten(part.children) : " ")).join("");
}

const SPECIAL = /[`*_~[!<\\\n]|https?:\/\//g;

/** Parse emphasis, code, links and line breaks. Markers without a partner stay text. */
export function parseInline(text: string, depth = 0): Inline[] {
  const parts: Inline[] = [];
  let plain = "";
  const push = (part: Inline) => {
    if (plain) parts.push({ kind: "text", text: plain });
    plain = "";
    parts.push(part);
  };
  const missing = new Set<string>(); // markers that do not occur again
  let at = 0;
  while (at < text.length) {
    SPECIAL.lastIndex = at;
    const found = SPECIAL.exec(text);
    if (!found || depth > MAX_DEPTH) {
      plain += text.slice(at);
      break;
    }
    plain += text.slice(at, found.index);
    at = found.index;
    const taken = takeInline(text, at, depth, missing);
    if (taken) {
      push(taken[0]);
      at = taken[1];
    } else if (text[at] === "\\" && at + 1 < text.length) {
      plain += text[at + 1];
      at += 2;
    } else {
      plain += found[0].length > 1 ? found[0] : (text[at] ?? "");
      at += found[0].length > 1 ? found[0].length : 1;
    }
  }
  if (plain) parts.push({ kind: "text", text: plain });
  return parts;
}

function takeInline(text: string, at: number, depth: number, missing: Set<string>): [Inline, number] | null {
  const close = (marker: string, from: number): number => {
    if (missing.has(marker)) return -1;
    const end = text.indexOf(marker, from);
    if (end < 0) missing.add(marker);
    return end;
  };
  const char = text[at];
  if (char === "\n") return [{ kind: "break" }, at + 1];
  if (char === "`") {
    const fence = /^`+/.exec(text.slice(at, at + 20))?.[0] ?? "`";
    const end = close(fence, at + fence.length);
    return end < 0 ? null : [{ kind: "code", text: text.slice(at + fence.length, end).trim() }, end + fence.length];
  }
  for (const [marker, kind] of [
    ["**", "strong"],
    ["__", "strong"],
    ["~~", "strike"],
    ["*", "emphasis"],
    ["_", "emphasis"],
  ] as const) {
    if (!text.startsWith(marker, at)) continue;
    const next = text[at + marker.length] ?? " ";
    if (/\s/.test(next) || (marker.startsWith("_") && /\w/.test(text[at - 1] ?? ""))) return null;
    const end = close(marker, at + marker.length + 1);
    if (end < 0 || end - at > 5000 || /\s/.test(text[end - 1] ?? " ")) return null;
    return [{ kind, children: parseInline(text.slice(at + marker.length, end), depth + 1) }, end + marker.length];
  }
  const image = char === "!" && text[at + 1] === "[";
  if (char === "[" || image) return takeLink(text, image ? at + 1 : at, image, depth, close);
  if (char === "<" || char === "h") {
    const url = /^<?(https?:\/\/[^\s<>"'`\]]{1,2000})>?/.exec(text.slice(at, at + 2048));
    const href = url ? safeHref((url[1] ?? "").replace(/[.,;:!?)]+$/, "")) : null;
    if (!url || !href) return null;
    const shown = (url[1] ?? "").replace(/[.,;:!?)]+$/, "");
    const length =
      url[0].startsWith("<") && url[0].endsWith(">") ? url[0].length : url[0].indexOf(shown) + shown.length;
    return [{ kind: "link", href, host: "", children: [{ kind: "text", text: shown }] }, at + length];
  }
  return null;
}

function takeLink(
  text: string,
  at: number,
  image: boolean,
  depth: number,
  close: (marker: string, from: number) => number,
): [Inline, number] | null {
  const end = close("](", at + 1);
  if (end < 0 || end - at > 2000) return null;
  const stop = text.indexOf(")", end + 2);
  if (stop < 0 || stop - end > 3000) return null;
  const target = (
    text
      .slice(end + 2, stop)
      .trim()
      .split(/\s/)[0] ?? ""
  ).replace(/^<|>$/g, "");
  const label = text.slice(at + 1, end);
  const href = safeHref(target);
  if (!href) return [{ kind: "text", text: `${label} (${target.slice(0, 200)})` }, stop + 1];
  const children = image ? [{ kind: "text", text: `image: ${label}` } as Inline] : parseInline(label, depth + 2);
  return [{ kind: "link", href, host: hostOf(href), children }, stop + 1];
}

/** Return the address of a link that a page may offer; null for scripts, data, files and relative addresses. */
export function safeHref(target: string): string | null {
  try {
    const url = new URL(target);
    return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
  } catch {
    return null;
  }
}

function hostOf(href: string): string {
  const url = new URL(href);
  return url.protocol === "mailto:" ? url.pathname : url.host;
}
