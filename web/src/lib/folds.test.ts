import { describe, expect, it } from "vitest";
import { diffLines } from "./diff";
import { formatBytes, formatCost, formatDuration, shortId } from "./format";
import { check, exampleOf } from "./json_schema";
import type { LiveEvent } from "./live_protocol";
import { describeRule } from "./rules";
import { findCriticalPath, listRows } from "./nested_waterfall";
import { patchRun } from "./run_patch";
import { FrameReader } from "./sse";
import { Waterfall } from "./waterfall";

type DataOf<Type extends LiveEvent["type"]> = Partial<Extract<LiveEvent, { type: Type }>["data"]>;

const event = <Type extends LiveEvent["type"]>(sequence: number, type: Type, data: DataOf<Type> = {}) =>
  ({
    event_id: `e${sequence}`,
    timestamp: "2026-11-16T09:00:00Z",
    agent_id: "a",
    run_id: "run_1",
    parent_run_id: null,
    session_id: "ses_1",
    sequence,
    type,
    data,
  }) as LiveEvent;

describe("server-sent events", () => {
  it("are read however they are cut, with comments and positions", () => {
    const text = ':\n\nid: 7\n\nid: 8\nevent: token\ndata: {"a":1}\n\nevent: x\ndata: 2\n\n';
    for (const size of [1, 3, 7, 1000]) {
      const reader = new FrameReader();
      const frames = [];
      for (let at = 0; at < text.length; at += size) frames.push(...reader.push(text.slice(at, at + size)));
      expect(frames).toEqual([
        { id: "7", event: "message", data: "" },
        { id: "8", event: "token", data: '{"a":1}' },
        { id: null, event: "x", data: "2" },
      ]);
    }
  });
});

describe("timeline", () => {
  it("makes spans of steps, model calls, tools and waits", () => {
    const made = new Waterfall();
    const line = (sequence: number, type: string, more = {}) => ({ sequence, at: sequence, type, size: 1, ...more });
    made.add([
      line(1, "run_start"),
      line(2, "step_start", { step: 1 }),
      line(3, "llm_request", { step: 1, attempt: 1, name: "m" }),
      line(4, "llm_error", { step: 1, attempt: 1 }),
      line(5, "llm_request", { step: 1, attempt: 2 }),
      line(6, "llm_response", { step: 1, attempt: 2 }),
    ]);
    made.add([
      line(7, "tool_call_start", { call_id: "c", name: "bash" }),
      line(8, "run_waiting", { text: "approval" }),
      line(9, "tool_call_end", { call_id: "c" }),
      line(10, "run_end"),
    ]);
    expect(made.spans.map((span) => [span.kind, span.start, span.end, span.failed])).toEqual([
      ["step", 2, 10, false],
      ["model", 3, 6, false],
      ["tool", 7, 9, false],
      ["wait", 8, 9, false],
    ]);
    expect(made.spans[1]).toMatchObject({ attemptStart: 5, failures: [{ start: 3, end: 4 }] });
  });

  it("nests child runs and finds the spans that the end depends on", () => {
    const fall = (...lines: [at: number, type: string, more?: object][]) => {
      const made = new Waterfall();
      made.add(lines.map(([at, type, more], index) => ({ sequence: index + 1, at, type, size: 1, ...more })));
      return made;
    };
    const quick = { call_id: "a", name: "quick", run_id: "run_a" };
    const slow = { call_id: "b", name: "slow", run_id: "run_b" };
    const falls = new Map([
      [
        "run",
        fall(
          [0, "run_start"],
          [0, "step_start", { step: 1 }],
          [0, "llm_request", { step: 1, attempt: 1, name: "m" }],
          [2, "llm_response", { step: 1 }],
          [2, "agent_spawn", quick],
          [2, "agent_spawn", slow],
          [2, "run_waiting", { text: "child" }],
          [4, "agent_end", { ...quick, text: "completed" }],
          [9, "agent_end", { ...slow, text: "failed" }],
          [9, "tool_call_start", { call_id: "c", name: "bash" }],
          [10, "tool_call_end", { call_id: "c" }],
          [10, "run_end"],
        ),
      ],
      ["run_a", fall([2, "run_start"], [2, "llm_request", { step: 1, name: "m" }], [4, "llm_response"])],
      [
        "run_b",
        fall(
          [2, "run_start"],
          [3, "tool_call_start", { call_id: "x", name: "wc" }],
          [9, "tool_call_end", { call_id: "x" }],
        ),
      ],
    ]);
    const path = findCriticalPath(falls, "run");
    const rows = listRows(falls, "run", new Set(["run_a"]), path);
    expect(rows.map((row) => [row.span.label, row.depth, row.isOpen, row.isCritical])).toEqual([
      ["1", 0, null, false],
      ["m", 1, null, true],
      ["quick", 1, false, false],
      ["slow", 1, true, true],
      ["wc", 3, null, true],
      ["bash", 1, null, true],
    ]);
    expect(rows[3]?.span.failed).toBe(true);
    expect(Object.fromEntries(path.seconds)).toEqual({ model: 2, tool: 7 });
  });
});

describe("lists", () => {
  const run = {
    status: "pending",
    outcome: null as string | null,
    waiting_for: null,
    sequence: 1,
    cost: null as number | null,
    tokens: null as number | null,
  };
  it("change with events and ignore those that they know", () => {
    expect(patchRun(run, event(1, "run_start"))).toBeNull();
    const running = patchRun(run, event(2, "run_start"));
    expect(running?.status).toBe("running");
    const ended = patchRun(
      run,
      event(9, "run_end", {
        status: "completed",
        outcome: "completed",
        metrics: { cost: 0.5, input_tokens: 1, output_tokens: 2, steps: 1, duration_ms: 3 },
      }),
    );
    expect([ended?.outcome, ended?.cost, ended?.tokens]).toEqual(["completed", 0.5, 3]);
    expect(ended && patchRun(ended, event(10, "run_start"))).toBeNull();
  });
});

describe("differences", () => {
  it("name what was added and removed", () => {
    expect(diffLines("a\nb\nc", "a\nx\nc").map((line) => line.kind)).toEqual(["same", "removed", "added", "same"]);
    expect(diffLines("a", "a").every((line) => line.kind === "same")).toBe(true);
  });
});

describe("schemas", () => {
  const definitions = { Limits: { type: "object", properties: { steps: { type: "integer", minimum: 1 } } } };
  const schema = {
    type: "object",
    required: ["name"],
    properties: {
      name: { type: "string", minLength: 1 },
      limits: { $ref: "#/Limits" },
      mode: { enum: ["a", "b"] },
      model: { anyOf: [{ type: "string" }, { type: "null" }] },
    },
  };
  it("find missing, unknown and wrong values", () => {
    expect(check({ name: "x", limits: { steps: 2 }, mode: "a", model: null }, schema, definitions)).toEqual([]);
    const faults = check({ limits: { steps: 0, more: 1 }, mode: "c", model: 5, colour: 1 }, schema, definitions).map(
      (fault) => fault.path,
    );
    expect(faults).toEqual(["", "limits.steps", "limits.more", "mode", "model", "colour"]);
  });
  it("give examples", () => expect(exampleOf(schema, definitions)).toEqual({ name: "text" }));
});

describe("remembered approvals", () => {
  it("say which calls they cover", () => {
    expect(describeRule("bash", "exactly: ls *.c | wc -l\u202e")).toBe("Exactly the command ls *.c | wc -l⟨U+202E⟩");
    expect([describeRule("post", "*"), describeRule("bash", "git log *")]).toEqual([
      "Every post",
      "bash with git log *",
    ]);
  });
});

describe("numbers", () => {
  it("read well", () => {
    expect([formatCost(null), formatCost(0), formatCost(0.00123), formatCost(12.3)]).toEqual([
      "–",
      "$0",
      "$0.0012",
      "$12.30",
    ]);
    expect([formatDuration(12), formatDuration(1500), formatDuration(61_000), formatDuration(7_260_000)]).toEqual([
      "12 ms",
      "1.5 s",
      "1 min 01 s",
      "2 h 01 min",
    ]);
    expect([formatBytes(10), formatBytes(5_000_000), shortId("run_01a1e689215e700084bcf7433c4642b9")]).toEqual([
      "10 B",
      "4.8 MB",
      "run_…3c4642b9",
    ]);
  });
});
