/** The OpenAPI description that the server serves, loaded once. */

import { messageOf } from "./api.svelte";
import type { Definitions, Schema } from "./json_schema";

export interface OperationDescription {
  operationId: string;
  summary?: string;
  description?: string;
  tags?: string[];
  parameters?: { name: string; in: string; required?: boolean; description?: string; schema?: Schema }[];
  requestBody?: { content: Record<string, { schema: Schema }> };
  responses: Record<string, { description?: string; content?: Record<string, { schema: Schema }> }>;
}

export interface Description {
  info: { title: string; version: string; description?: string };
  paths: Record<string, Record<string, OperationDescription>>;
  components: { schemas: Definitions };
}

let loading: Promise<Description> | undefined;

export function loadDescription(): Promise<Description> {
  loading ??= fetch("/v1/openapi.json")
    .then(async (response) => {
      if (!response.ok) throw new Error(String(response.status));
      return (await response.json()) as Description;
    })
    .catch((error: unknown) => {
      loading = undefined;
      throw new Error(messageOf(error));
    });
  return loading;
}
