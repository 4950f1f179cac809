/** What the tabs and the worker that holds the one event stream say to each other. */

/** A stored event of a run. */
export interface LiveEvent {
  event_id: string;
  timestamp: string;
  agent_id: string;
  run_id: string;
  parent_run_id: string | null;
  session_id: string;
  sequence: number;
  type: string;
  data: Record<string, unknown>;
}

export type LinkState = "connecting" | "open" | "away" | "signed_out";

export type FromTab = { kind: "hello" } | { kind: "bye" } | { kind: "retry" };

export type ToTab =
  { kind: "events"; events: LiveEvent[] } | { kind: "state"; state: LinkState; since: number } | { kind: "reset" };
