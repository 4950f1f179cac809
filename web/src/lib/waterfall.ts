/** Spans on a time axis, from the short lines of a run's events. */

export interface Line {
  sequence: number;
  at: number;
  type: string;
  size: number;
  step?: number | null;
  attempt?: number | null;
  call_id?: string | null;
  name?: string | null;
  run_id?: string | null;
  duration_ms?: number | null;
  text?: string;
}

export type SpanKind = "step" | "model" | "tool" | "child" | "wait";

/** A failed attempt of a model call. */
export interface FailedAttempt {
  start: number;
  end: number;
  detail: string;
}

export interface Span {
  key: string;
  kind: SpanKind;
  label: string;
  detail: string;
  start: number;
  /** Null while it is in progress. */
  end: number | null;
  failed: boolean;
  step: number;
  sequence: number;
  runId: string | null;
  callId: string | null;
  depth: number;
  /** The attempts before the last one. A call and its retries are one span. */
  failures: readonly FailedAttempt[];
  /** When the last attempt began. */
  attemptStart: number;
}

const WAITING = new Set(["run_waiting", "approval_requested", "clarify_requested", "client_call_requested"]);
/** Waits that another span shows: the child run, or the model call with its retries. */
const SHOWN_ELSEWHERE = new Set(["child", "retry"]);

/** Fold lines into spans, in the order of their starts. Lines may come in several parts. */
export class Waterfall {
  spans: Span[] = [];
  start = 0;
  end = 0;
  /** The places of spans that are in progress. */
  #open = new Map<string, number>();
  /** The places of model calls, by step. */
  #calls = new Map<number, number>();
  #step = 0;

  add(lines: readonly Line[]): void {
    for (const line of lines) this.#take(line);
  }

  #take(line: Line): void {
    if (!this.start) this.start = line.at;
    this.end = Math.max(this.end, line.at);
    if (!WAITING.has(line.type)) this.#close("wait", line, false);
    const call = `call:${line.call_id ?? ""}`;
    switch (line.type) {
      case "step_start":
        this.#step = line.step ?? this.#step + 1;
        this.#begin("step", `step:${this.#step}`, line, `${this.#step}`, 0);
        break;
      case "step_end":
        this.#close(`step:${line.step ?? this.#step}`, line, false);
        break;
      case "llm_request":
        this.#beginCall(line);
        break;
      case "llm_response":
        this.#close("model", line, false);
        break;
      case "llm_error":
        this.#close("model", line, true);
        break;
      case "tool_call_start":
      case "client_call_requested":
        this.#begin("tool", call, line, line.name ?? "", 1);
        break;
      case "tool_call_end":
        this.#close(call, line, false);
        break;
      case "tool_call_error":
      case "tool_call_blocked":
        if (!this.#open.has(call)) this.#begin("tool", call, line, line.name ?? "", 1);
        this.#close(call, line, true);
        break;
      case "agent_spawn":
        this.#begin("child", `child:${line.call_id ?? ""}`, line, line.name ?? "", 1);
        break;
      case "agent_end":
        this.#close(`child:${line.call_id ?? ""}`, line, line.text !== "completed");
        break;
      case "run_waiting":
        if (!SHOWN_ELSEWHERE.has(line.text ?? "")) this.#begin("wait", "wait", line, line.text ?? "", 1);
        break;
      case "run_end":
        for (const key of [...this.#open.keys()]) this.#close(key, line, false);
    }
  }

  /** Begin a model call, or another attempt of the call that failed in the same step. */
  #beginCall(line: Line): void {
    const step = line.step ?? this.#step;
    const at = this.#calls.get(step);
    const before = at === undefined ? undefined : this.spans[at];
    if (at === undefined || !before?.failed || before.end === null) {
      this.#begin("model", "model", line, line.name ?? "", 1);
      this.#calls.set(step, this.spans.length - 1);
      return;
    }
    const failure = { start: before.attemptStart, end: before.end, detail: before.detail };
    this.spans[at] = {
      ...before,
      label: line.name ?? before.label,
      detail: line.text ?? "",
      end: null,
      failed: false,
      failures: [...before.failures, failure],
      attemptStart: line.at,
    };
    this.#open.set("model", at);
  }

  #begin(kind: SpanKind, key: string, line: Line, label: string, depth: number): void {
    const span: Span = {
      key: `${key}:${line.sequence}`,
      kind,
      label,
      detail: line.text ?? "",
      start: line.at,
      end: null,
      failed: false,
      step: line.step ?? this.#step,
      sequence: line.sequence,
      runId: line.run_id ?? null,
      callId: line.call_id ?? null,
      depth,
      failures: [],
      attemptStart: line.at,
    };
    this.#open.set(key, this.spans.push(span) - 1);
  }

  #close(key: string, line: Line, failed: boolean): void {
    const at = this.#open.get(key);
    const span = at === undefined ? undefined : this.spans[at];
    if (at === undefined || !span) return;
    const detail = failed && line.text ? line.text : span.detail;
    this.spans[at] = { ...span, end: line.at, failed, detail }; // another object: rows are drawn again only for one
    this.#open.delete(key);
  }
}

/** The position of a time between two others, from 0 to 1. */
export function share(at: number, start: number, end: number): number {
  return end > start ? Math.min(1, Math.max(0, (at - start) / (end - start))) : 0;
}
