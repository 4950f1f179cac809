/** The HTTP API, typed from its OpenAPI description. */

import createClient, { type Middleware } from "openapi-fetch";
import type { components, paths } from "../schema";
import { texts } from "../texts";

export type Schemas = components["schemas"];
export type Identity = Schemas["Identity"];
export type Scope = Identity["scopes"][number];

/** An error of the API: what happened, and what to do. */
export class ApiProblem extends Error {
  constructor(
    readonly status: number,
    message: string,
    readonly kind = "",
  ) {
    super(message);
  }
}

function rightsOf({ user, scopes, agents, visibility, is_owner }: Identity): string {
  return JSON.stringify([user, [...scopes].sort(), agents, visibility, is_owner]);
}

class Session {
  /** Who has signed in now. */
  identity: Identity | null = $state(null);
  /** Who the pages are for. They stay, covered, while a sign-in has expired, so that nothing typed is lost. */
  shownTo: Identity | null = $state(null);
  /** Whether the first request has been answered. */
  known = $state(false);
  /** Return whether the user has one of these scopes. An administrator has every scope. */
  may(...scopes: Scope[]): boolean {
    const own = this.shownTo?.scopes ?? [];
    return own.includes("admin") || scopes.some((scope) => own.includes(scope));
  }
  /** Begin as someone. Pages that were made for someone with other rights are dropped. */
  begin(identity: Identity): void {
    if (this.shownTo && rightsOf(this.shownTo) !== rightsOf(identity)) {
      location.reload();
      return;
    }
    this.identity = this.shownTo = identity;
  }
}

export const session = new Session();

const middleware: Middleware = {
  onRequest({ request }) {
    request.headers.set("x-treadle", "dashboard");
    return request;
  },
  onResponse({ response, schemaPath }) {
    if (response.status === 401 && schemaPath !== "/v1/dashboard/sign-in") session.identity = null;
    return response;
  },
};

export const api = createClient<paths>({ baseUrl: "/", cache: "no-store" });
api.use(middleware);

interface Answer<T> {
  data?: T;
  error?: unknown;
  response: Response;
}

/** Return the data of an answer, or throw what the server says is wrong. */
export async function unwrap<T>(pending: Promise<Answer<T>>): Promise<T> {
  let answer: Answer<T>;
  try {
    answer = await pending;
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new ApiProblem(0, texts.errors.unreachable);
  }
  if (answer.response.ok) return answer.data as T;
  const problem = answer.error as { detail?: string; title?: string; type?: string } | string | undefined;
  const detail = typeof problem === "object" ? (problem.detail ?? problem.title) : problem;
  const kind = typeof problem === "object" ? (problem.type ?? "").replace("urn:treadle:problem:", "") : "";
  throw new ApiProblem(answer.response.status, detail || texts.errors.status(answer.response.status), kind);
}

export function isUnreachable(error: unknown): boolean {
  return error instanceof ApiProblem && error.status === 0;
}

export function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}

/** Find out whether this browser has signed in. */
export async function identify(): Promise<void> {
  try {
    const { identity } = await unwrap(api.GET("/v1/dashboard/identity"));
    if (identity) session.begin(identity);
    else session.identity = null;
  } catch (error) {
    if (error instanceof ApiProblem && error.status === 401) session.identity = null;
    else if (error instanceof ApiProblem && error.status === 0) throw error;
  } finally {
    session.known = true;
  }
}
