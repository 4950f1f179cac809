/** The spans of a run and of all runs below it as rows, and the chain of spans that its duration depends on. */

import type { Span, SpanKind, Waterfall } from "./waterfall";

export interface Row {
  /** Identifies the span in the whole tree. */
  key: string;
  run: string;
  span: Span;
  depth: number;
  /** Whether the spans of the child run are shown below. Null: it has none. */
  isOpen: boolean | null;
  isCritical: boolean;
}

export interface CriticalPath {
  keys: ReadonlySet<string>;
  /** Seconds by kind of span. */
  seconds: ReadonlyMap<SpanKind, number>;
}

type Falls = ReadonlyMap<string, Waterfall>;

/** Times are the clocks of different processes: a span may begin a moment before the one it follows has ended. */
const TOLERANCE_SECONDS = 0.001;

export const keyOf = (run: string, span: Span) => `${run}/${span.key}`;

/** Return the rows of a run, each child run with its spans below, except those that are closed. */
export function listRows(falls: Falls, root: string, closed: ReadonlySet<string>, critical: CriticalPath): Row[] {
  const rows: Row[] = [];
  const seen = new Set<string>();
  const add = (run: string, base: number) => {
    seen.add(run);
    for (const span of falls.get(run)?.spans ?? []) {
      const key = keyOf(run, span);
      const inside = span.kind === "child" && span.runId && !seen.has(span.runId) ? span.runId : null;
      const isOpen = inside === null ? null : !closed.has(inside);
      rows.push({ key, run, span, depth: base + span.depth, isOpen, isCritical: critical.keys.has(key) });
      if (inside !== null && isOpen) add(inside, base + span.depth + 1);
    }
  };
  add(root, 0);
  return rows;
}

/** Return the spans that ended one after another until the end of the run: without them it would have ended earlier. */
export function findCriticalPath(falls: Falls, root: string): CriticalPath {
  const keys = new Set<string>();
  const seconds = new Map<SpanKind, number>();
  const seen = new Set<string>();
  const walk = (run: string, until: number) => {
    const fall = falls.get(run);
    if (!fall || seen.has(run)) return false;
    seen.add(run);
    const endOf = (span: Span) => span.end ?? fall.end;
    const spans = fall.spans.filter((span) => span.kind !== "step").sort((one, other) => endOf(other) - endOf(one));
    for (const span of spans) {
      const end = endOf(span);
      if (end > until + TOLERANCE_SECONDS || span.start >= until) continue;
      keys.add(keyOf(run, span));
      const isInside = span.kind === "child" && span.runId !== null && walk(span.runId, Infinity);
      if (!isInside) seconds.set(span.kind, (seconds.get(span.kind) ?? 0) + end - span.start);
      until = span.start;
    }
    return true;
  };
  walk(root, Infinity);
  return { keys, seconds };
}
