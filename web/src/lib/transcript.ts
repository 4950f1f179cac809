/** The transcript of a run for people, folded from its events. Live text is kept apart until it is stored. */

import type { LiveEvent } from "./live_protocol";

export interface ToolItem {
  kind: "tool";
  key: string;
  callId: string;
  name: string;
  arguments: string;
  state: "asked" | "waiting" | "running" | "ok" | "failed" | "blocked";
  result: string;
  problem: string;
  durationMs: number | null;
  approvalId: string | null;
  /** The rule that would allow such calls for the session, if one can be offered. */
  pattern: string | null;
  /** What the call would destroy, if it is known to be destructive. */
  destructive: string | null;
  question: string;
  options: string[];
  progress: string;
  childRun: string | null;
  step: number;
}

export type Item =
  | { kind: "user"; key: string; text: string; images: { media_type: string; data: string }[]; steered: boolean; at: string }
  | { kind: "assistant"; key: string; text: string; thinking: string; step: number; at: string; model: string }
  | ToolItem
  | { kind: "note"; key: string; type: string; text: string; tone: "plain" | "warn" | "bad"; at: string }
  | { kind: "recall"; key: string; count: number; text: string; at: string }
  | { kind: "end"; key: string; outcome: string; reason: string; next: string; text: string; at: string };

export interface LiveText {
  request: number;
  text: string;
  thinking: string;
}

interface Part {
  kind: string;
  text?: string;
  call_id?: string;
  name?: string;
  arguments?: string;
  content?: string;
  is_error?: boolean;
  media_type?: string;
  data?: string;
}

const text = (value: unknown): string => (typeof value === "string" ? value : "");
const number = (value: unknown): number | null => (typeof value === "number" ? value : null);

/** The recalled texts of a section, one per line, without the marks that are for the model. */
function listRecalled(section: string): string {
  const lines = section.split("\n").filter((line) => line.startsWith("- "));
  return lines.length ? lines.map((line) => line.slice(2)).join("\n") : section;
}

export class Transcript {
  items: Item[] = [];
  live: LiveText = { request: 0, text: "", thinking: "" };
  /** The sequence of the last durable event that is included. */
  sequence = 0;
  model = "";
  #tools = new Map<string, ToolItem>();
  #step = 0;
  #answer = "";

  /** Include an event. Return whether anything that is shown has changed. */
  apply(event: LiveEvent): boolean {
    const data = event.data;
    switch (event.type) {
      case "token":
      case "thinking":
        return this.#hear(event.type === "token" ? "text" : "thinking", data);
      case "attempt_reset":
        this.live = { request: 0, text: "", thinking: "" };
        return true;
      case "tool_call_progress": {
        const tool = this.#tools.get(text(data.call_id));
        if (tool) tool.progress = tool.progress.slice(0, Number(data.offset)) + text(data.text);
        return tool !== undefined;
      }
      case "tool_call_delta":
        return false;
    }
    if (event.sequence <= this.sequence) return false;
    this.sequence = event.sequence;
    return this.#store(event, data);
  }

  #hear(field: "text" | "thinking", data: Record<string, unknown>): boolean {
    const request = Number(data.request);
    if (request !== this.live.request) this.live = { request, text: "", thinking: "" };
    const known = this.live[field];
    const offset = Number(data.offset);
    if (offset > known.length) this.live[field] = known + "…" + text(data.text);
    else this.live[field] = known.slice(0, offset) + text(data.text);
    return true;
  }

  #store(event: LiveEvent, data: Record<string, unknown>): boolean {
    const key = `${event.run_id}:${event.sequence}`;
    const at = event.timestamp;
    switch (event.type) {
      case "user_message":
      case "message_steered": {
        const message = data.message as { parts?: Part[] } | undefined;
        const parts = message?.parts ?? [];
        this.items.push({
          kind: "user", key, at, steered: event.type === "message_steered",
          text: parts.filter((part) => part.kind === "text").map((part) => part.text ?? "").join(""),
          images: parts.filter((part) => part.kind === "image").map((part) => ({ media_type: part.media_type ?? "", data: part.data ?? "" })),
        });
        return true;
      }
      case "model_resolved":
        this.model = text(data.model);
        return false;
      case "step_start":
        this.#step = Number(data.step) || this.#step;
        return false;
      case "llm_response":
        return this.#reply(data, key, at);
      case "llm_error":
        this.live = { request: 0, text: "", thinking: "" };
        return this.#note(key, at, event.type, `${text(data.kind)}: ${text(data.message)}`, "warn");
      case "llm_retry":
        return this.#note(key, at, event.type, `in ${Math.round((number(data.delay_ms) ?? 0) / 100) / 10} s`, "plain");
      case "llm_fallback":
        return this.#note(key, at, event.type, `${text(data.to)}: ${text(data.reason)}`, "warn");
      case "tool_call_start":
        return this.#change(data, { state: "running", arguments: text(data.arguments) });
      case "tool_call_end":
        return this.#change(data, { state: "ok", result: text(data.content), durationMs: number(data.duration_ms), progress: "" });
      case "tool_call_error":
        return this.#change(data, { state: "failed", result: text(data.content), problem: text(data.kind), durationMs: number(data.duration_ms), progress: "" });
      case "tool_call_blocked":
      case "hook_blocked":
        return this.#change(data, { state: "blocked", result: text(data.content), problem: text(data.guard) || text(data.hook) });
      case "approval_requested":
        return this.#change(data, { state: "waiting", approvalId: text(data.approval_id), arguments: text(data.arguments), problem: text(data.reason), pattern: text(data.pattern) || null, destructive: text(data.destructive) || null });
      case "approval_decided": {
        const tool = [...this.#tools.values()].find((each) => each.approvalId === text(data.approval_id));
        if (tool) Object.assign(tool, { state: "asked", approvalId: null, problem: "" });
        return this.#note(key, at, event.type, [text(data.decision), text(data.by), text(data.note)].filter(Boolean).join(" · "), "plain");
      }
      case "approval_expired":
        return this.#note(key, at, event.type, "", "warn");
      case "clarify_requested":
        return this.#change(data, { state: "waiting", question: text(data.question), options: (data.options as string[] | undefined) ?? [] });
      case "clarify_answered":
        return this.#change(data, { state: "asked", question: "", options: [] });
      case "agent_spawn":
        return this.#change(data, { childRun: text(data.child_run_id) || text(data.child) || text(data.run_id) || null });
      case "run_waiting":
        // what is above says what it waits for
        if (["approval", "answer", "interrupted"].includes(text(data.reason))) return false;
        return this.#note(key, at, `${event.type}:${text(data.reason)}`, text(data.detail), "plain");
      case "run_interrupted":
      case "cancel_requested":
      case "run_recovered":
      case "run_quarantined":
      case "stuck_detected":
      case "loop_warning":
      case "budget_exhausted":
      case "quota_exceeded":
      case "compaction_failed":
      case "phantom_action":
      case "calls_dropped":
        return this.#note(key, at, event.type, text(data.reason) || text(data.content) || text(data.message), "warn");
      case "resume_requested":
      case "context_compacted":
      case "segment_opened":
      case "continuation":
        return this.#note(key, at, event.type, text(data.reason), "plain");
      case "memory_recalled": {
        const count = [data.reminders, data.notes].reduce<number>((sum, each) => sum + (Array.isArray(each) ? each.length : 0), 0);
        if (count) this.items.push({ kind: "recall", key, at, count, text: listRecalled(text(data.section)) });
        return count > 0;
      }
      case "run_end":
        this.live = { request: 0, text: "", thinking: "" };
        this.items.push({
          kind: "end", key, at, outcome: text(data.outcome), reason: text(data.reason), next: text(data.next),
          text: text(data.text) === this.#answer ? "" : text(data.text),
        });
        return true;
    }
    return false;
  }

  #reply(data: Record<string, unknown>, key: string, at: string): boolean {
    this.live = { request: 0, text: "", thinking: "" };
    const parts = (data.parts as Part[] | undefined) ?? [];
    const said = parts.filter((part) => part.kind === "text").map((part) => part.text ?? "").join("");
    const thinking = parts.filter((part) => part.kind === "thinking").map((part) => part.text ?? "").join("\n\n");
    const step = Number(data.step) || this.#step;
    this.#answer = said;
    if (said || thinking) this.items.push({ kind: "assistant", key, text: said, thinking, step, at, model: this.model });
    for (const part of parts.filter((each) => each.kind === "tool_use")) {
      this.#tool(part.call_id ?? "", part.name ?? "", `${key}:${part.call_id}`, step).arguments = part.arguments ?? "";
    }
    return true;
  }

  #tool(callId: string, name: string, key: string, step: number): ToolItem {
    const known = this.#tools.get(callId);
    if (known) return known;
    const tool: ToolItem = {
      kind: "tool", key, callId, name, arguments: "", state: "asked", result: "", problem: "", durationMs: null,
      approvalId: null, pattern: null, destructive: null, question: "", options: [], progress: "", childRun: null, step,
    };
    this.items.push(tool);
    this.#tools.set(callId, tool);
    return tool;
  }

  #change(data: Record<string, unknown>, change: Partial<ToolItem>): boolean {
    const callId = text(data.call_id);
    Object.assign(this.#tool(callId, text(data.name), `call:${callId}`, this.#step), change);
    return true;
  }

  #note(key: string, at: string, type: string, said: string, tone: "plain" | "warn" | "bad"): boolean {
    this.items.push({ kind: "note", key, type, text: said, tone, at });
    return true;
  }
}
