/** The filters of the list of runs, as the address of the page has them. */

import type { Schemas } from "./api.svelte";

type Run = Schemas["RunView"];

export const STATUSES = ["pending", "running", "waiting", "completed", "failed", "cancelled"];
export const OUTCOMES = [
  "completed",
  "cancelled",
  "failed",
  "budget_exhausted",
  "max_steps",
  "deadline",
  "stuck",
  "model_error",
  "tool_error",
  "context_overflow",
  "quota_exceeded",
  "insufficient_credits",
  "approval_expired",
  "quarantined",
  "truncated",
  "empty",
  "refused",
  "silent",
];
export const COSTS = ["0.01", "0.1", "1", "10"];
const SECONDS: Record<string, number> = { hour: 3600, day: 86_400, week: 604_800, month: 2_592_000 };
export const PERIODS = ["today", ...Object.keys(SECONDS)];
export const ORDERS = ["created", "cost", "tokens", "steps", "duration", "score"] as const;
export type Order = (typeof ORDERS)[number];
/** The filters by who a run is for and how it is labelled. */
export const LABELS = ["user", "tag", "metadata"] as const;
/** The parameters that leave runs out. */
export const FILTERS = ["agent", "status", "outcome", "since", "until", "cost", "text", "session", ...LABELS];

const isTime = (value: string) => !Number.isNaN(Date.parse(value));

/** A parameter of the address that does not exist. Ignoring it would show what it was meant to leave out. */
export function findUnknown(query: URLSearchParams): [string, string] | null {
  const accepted: [string, (value: string) => boolean][] = [
    ["status", (value) => STATUSES.includes(value)],
    ["outcome", (value) => OUTCOMES.includes(value)],
    ["since", (value) => PERIODS.includes(value) || isTime(value)],
    ["until", isTime],
    ["cost", (value) => Number(value) > 0],
    ["order", (value) => ORDERS.some((order) => order === value)],
  ];
  for (const [name, accepts] of accepted) {
    const value = query.get(name);
    if (value && !accepts(value)) return [name, value];
  }
  return null;
}

/** The first moment of a period: one with a name, or a time. */
export function findStart(since: string | null, now = new Date()): string | undefined {
  if (!since) return undefined;
  if (since === "today") return new Date(now.getFullYear(), now.getMonth(), now.getDate()).toISOString();
  const seconds = SECONDS[since];
  return new Date(seconds ? now.getTime() - seconds * 1000 : since).toISOString();
}

/** The parameters of the API for the filters of an address. */
export function readFilter(query: URLSearchParams) {
  const cost = Number(query.get("cost"));
  const until = query.get("until");
  return {
    agent: query.get("agent") ?? undefined,
    session_id: query.get("session") ?? undefined,
    status: (query.get("status") as Run["status"] | null) ?? undefined,
    outcome: (query.get("outcome") as NonNullable<Run["outcome"]> | null) ?? undefined,
    since: findStart(query.get("since")),
    until: until ? new Date(until).toISOString() : undefined,
    min_cost: cost > 0 ? cost : undefined,
    text: query.get("text") ?? undefined,
    user: query.get("user") ?? undefined,
    tag: query.getAll("tag"),
    metadata: query.getAll("metadata"),
  };
}
