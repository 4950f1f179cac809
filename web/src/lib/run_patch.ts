/** Changes of a run in a list, from its events. */

import type { LiveEvent } from "./live_protocol";

interface Patchable {
  status: string;
  outcome: string | null;
  waiting_for: string | null;
  sequence: number;
  cost?: number | null;
  tokens?: number | null;
  steps?: number | null;
  duration_ms?: number | null;
}

/** Return the run as it is after an event, or null if nothing that a list shows has changed. */
export function patchRun<Run extends Patchable>(run: Run, event: LiveEvent): Run | null {
  if (event.sequence <= run.sequence || run.outcome !== null) return null;
  const sequence = event.sequence;
  switch (event.type) {
    case "run_waiting":
      return { ...run, sequence, status: "waiting", waiting_for: event.data.reason };
    case "run_end": {
      const { status, outcome, metrics } = event.data;
      return {
        ...run,
        sequence,
        status,
        outcome,
        waiting_for: null,
        cost: metrics.cost ?? null,
        tokens: (metrics.input_tokens ?? 0) + (metrics.output_tokens ?? 0),
        steps: metrics.steps ?? null,
        duration_ms: metrics.duration_ms ?? null,
      };
    }
    case "run_start":
    case "step_start":
    case "llm_request":
    case "tool_call_start":
      return run.status === "running" ? null : { ...run, sequence, status: "running", waiting_for: null };
    default:
      return null;
  }
}
