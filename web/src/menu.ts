/** The pages of the dashboard, as the menu shows them. Each is fetched when it is opened. */

import type { Component } from "svelte";
import { session } from "./lib/api.svelte";
import { texts } from "./texts";

// eslint-disable-next-line @typescript-eslint/no-explicit-any -- pages have different properties
export type AnyPage = Component<any>;
export interface Page {
  path: string;
  title: string;
  /** Whether the user may use it. */
  may: () => boolean;
  /** A page gets the id in its path, if there is one. */
  load: () => Promise<{ default: AnyPage }>;
}
const always = () => true;
const reads = () => session.may("read");
const decides = () => session.may("read", "approve");
const administers = () => session.may("admin");
const chats = () => session.may("run") && session.may("read");
export const GROUPS: { title: string; pages: Page[] }[] = [
  {
    title: texts.nav.work,
    pages: [
      {
        path: "overview",
        title: texts.overview.title,
        may: reads,
        load: () => import("./pages/Overview.svelte"),
      },
      { path: "runs", title: texts.runs.title, may: reads, load: () => import("./pages/Runs.svelte") },
      { path: "chat", title: texts.chat.title, may: chats, load: () => import("./pages/Chat.svelte") },
      {
        path: "inbox",
        title: texts.inbox.title,
        may: decides,
        load: () => import("./pages/Inbox.svelte"),
      },
      { path: "usage", title: texts.usage.title, may: reads, load: () => import("./pages/Usage.svelte") },
    ],
  },
  {
    title: texts.nav.agents,
    pages: [
      { path: "agents", title: texts.agents.title, may: reads, load: () => import("./pages/Agents.svelte") },
      {
        path: "evaluations",
        title: texts.evaluations.title,
        may: reads,
        load: () => import("./pages/Evaluations.svelte"),
      },
      { path: "models", title: texts.models.title, may: reads, load: () => import("./pages/Models.svelte") },
      { path: "memory", title: texts.memory.title, may: reads, load: () => import("./pages/Memory.svelte") },
      { path: "skills", title: texts.skills.title, may: reads, load: () => import("./pages/Skills.svelte") },
      {
        path: "mcp-servers",
        title: texts.mcp.title,
        may: administers,
        load: () => import("./pages/McpServers.svelte"),
      },
    ],
  },
  {
    title: texts.nav.automation,
    pages: [
      {
        path: "schedules",
        title: texts.schedules.title,
        may: administers,
        load: () => import("./pages/Schedules.svelte"),
      },
      {
        path: "inbound-webhooks",
        title: texts.hooks.title,
        may: administers,
        load: () => import("./pages/InboundWebhooks.svelte"),
      },
      {
        path: "webhooks",
        title: texts.webhooks.title,
        may: administers,
        load: () => import("./pages/Webhooks.svelte"),
      },
    ],
  },
  {
    title: texts.nav.administration,
    pages: [
      { path: "vault", title: texts.vault.title, may: administers, load: () => import("./pages/Vault.svelte") },
      { path: "tokens", title: texts.tokens.title, may: administers, load: () => import("./pages/Tokens.svelte") },
      { path: "system", title: texts.system.title, may: reads, load: () => import("./pages/System.svelte") },
      { path: "reference", title: texts.reference.title, may: always, load: () => import("./pages/Reference.svelte") },
    ],
  },
];
const HIDDEN: Page[] = [
  { path: "run", title: texts.run.title, may: reads, load: () => import("./pages/Run.svelte") },
  { path: "agent", title: texts.agents.title, may: reads, load: () => import("./pages/AgentEdit.svelte") },
  {
    path: "evaluation",
    title: texts.evaluations.evaluation,
    may: reads,
    load: () => import("./pages/Evaluation.svelte"),
  },
  { path: "suite", title: texts.evaluations.suite, may: reads, load: () => import("./pages/Suite.svelte") },
  { path: "compare", title: texts.compare.title, may: reads, load: () => import("./pages/Compare.svelte") },
  { path: "search", title: texts.search.title, may: reads, load: () => import("./pages/Search.svelte") },
];
const START: Page = {
  path: "start",
  title: texts.start.title,
  may: always,
  load: () => import("./pages/Start.svelte"),
};
/** Earlier addresses of pages. */
const MOVED: Record<string, string> = { approvals: "inbox" };
const ALL = [...GROUPS.flatMap((group) => group.pages), ...HIDDEN, START];

/** The pages of single entities, by the path before their id. */
const SINGLE: Record<string, string> = { runs: "run", agents: "agent", evaluations: "evaluation", suites: "suite" };

/** Return the name of the page for the first two segments of a path. */
export function namePage(first: string, id: string): string {
  return (id && SINGLE[first]) || first;
}

export function findPage(path: string): Page | undefined {
  return ALL.find((each) => each.path === (MOVED[path] ?? path));
}

/** All pages of the menu. */
export function listPages(): Page[] {
  return GROUPS.flatMap((group) => group.pages);
}

/** The page with which the user begins: the first one that is about their work. */
export function findStart(): Page {
  return GROUPS[0]?.pages.find((page) => page.may()) ?? (administers() ? findPage("system") : undefined) ?? START;
}
