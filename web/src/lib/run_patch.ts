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

interface Metrics {
  cost: number;
  input_tokens: number;
  output_tokens: number;
  steps: number;
  duration_ms: number;
}

/** Return the run as it is after an event, or null if nothing that a list shows has changed. */
export function patchRun<Run extends Patchable>(run: Run, event: LiveEvent): Run | null {
  if (event.sequence <= run.sequence || run.outcome !== null) return null;
  const sequence = event.sequence;
  switch (event.type) {
    case "run_waiting":
      return { ...run, sequence, status: "waiting", waiting_for: String(event.data.reason) };
    case "run_end": {
      const used = event.data.metrics as Metrics | undefined;
      return {
        ...run,
        sequence,
        status: String(event.data.status),
        outcome: String(event.data.outcome),
        waiting_for: null,
        cost: used?.cost ?? null,
        tokens: used ? used.input_tokens + used.output_tokens : null,
        steps: used?.steps ?? null,
        duration_ms: used?.duration_ms ?? null,
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
