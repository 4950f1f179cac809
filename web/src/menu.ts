/** The pages of the dashboard, as the menu shows them. Each is fetched when it is opened. */

import type { Component } from "svelte";
import type { Scope } from "./lib/api.svelte";
import { texts } from "./texts";

// eslint-disable-next-line @typescript-eslint/no-explicit-any -- pages have different properties
export type AnyPage = Component<any>;
export interface Page {
  path: string;
  title: string;
  scope?: Scope;
  /** A page gets the id in its path, if there is one. */
  load: () => Promise<{ default: AnyPage }>;
}
export const GROUPS: { title: string; pages: Page[] }[] = [
  {
    title: texts.nav.work,
    pages: [
      { path: "runs", title: texts.runs.title, scope: "read", load: () => import("./pages/Runs.svelte") },
      { path: "chat", title: texts.chat.title, scope: "run", load: () => import("./pages/Chat.svelte") },
      {
        path: "approvals",
        title: texts.approvals.title,
        scope: "read",
        load: () => import("./pages/Approvals.svelte"),
      },
      { path: "usage", title: texts.usage.title, scope: "read", load: () => import("./pages/Usage.svelte") },
    ],
  },
  {
    title: texts.nav.agents,
    pages: [
      { path: "agents", title: texts.agents.title, scope: "read", load: () => import("./pages/Agents.svelte") },
      { path: "models", title: texts.models.title, scope: "read", load: () => import("./pages/Models.svelte") },
      { path: "memory", title: texts.memory.title, scope: "read", load: () => import("./pages/Memory.svelte") },
      { path: "skills", title: texts.skills.title, scope: "read", load: () => import("./pages/Skills.svelte") },
      {
        path: "mcp-servers",
        title: texts.mcp.title,
        scope: "admin",
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
        scope: "read",
        load: () => import("./pages/Schedules.svelte"),
      },
      {
        path: "inbound-webhooks",
        title: texts.hooks.title,
        scope: "read",
        load: () => import("./pages/InboundWebhooks.svelte"),
      },
      {
        path: "webhooks",
        title: texts.webhooks.title,
        scope: "admin",
        load: () => import("./pages/Webhooks.svelte"),
      },
    ],
  },
  {
    title: texts.nav.administration,
    pages: [
      { path: "vault", title: texts.vault.title, scope: "admin", load: () => import("./pages/Vault.svelte") },
      { path: "tokens", title: texts.tokens.title, scope: "admin", load: () => import("./pages/Tokens.svelte") },
      { path: "system", title: texts.system.title, scope: "read", load: () => import("./pages/System.svelte") },
      { path: "reference", title: texts.reference.title, load: () => import("./pages/Reference.svelte") },
    ],
  },
];
const HIDDEN: Page[] = [
  { path: "run", title: texts.run.title, load: () => import("./pages/Run.svelte") },
  { path: "agent", title: texts.agents.title, load: () => import("./pages/AgentEdit.svelte") },
  { path: "compare", title: texts.compare.title, load: () => import("./pages/Compare.svelte") },
  { path: "search", title: texts.search.title, load: () => import("./pages/Search.svelte") },
];
const ALL = [...GROUPS.flatMap((group) => group.pages), ...HIDDEN];

export function findPage(path: string): Page | undefined {
  return ALL.find((each) => each.path === path);
}
