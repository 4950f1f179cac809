/** What the tabs and the worker that holds the one event stream say to each other. */

import type { components } from "../schema";

/** A stored event of a run: a union by `type`. */
export type LiveEvent = components["schemas"]["Event"];

export type LinkState = "connecting" | "open" | "away" | "signed_out";

export type FromTab = { kind: "hello" } | { kind: "bye" } | { kind: "retry" };

export type ToTab =
  { kind: "events"; events: LiveEvent[] } | { kind: "state"; state: LinkState; since: number } | { kind: "reset" };
