import { expect, test } from "vitest";
import type { Schemas } from "./api.svelte";
import { writeCsv, writeJsonLines } from "./run_export";

const run = {
  run_id: "run_1",
  agent: "helper",
  status: "completed",
  cost: -0.5,
  tags: ["a", "b"],
  summary: '=1+1, "said"\nhe',
} as unknown as Schemas["RunView"];

test("cells are quoted, and no cell is a formula", () => {
  const [head, ...rest] = writeCsv([run]).split("\r\n");
  expect(head).toMatch(/^run_id,session_id,/);
  expect(rest.join("\r\n")).toContain(`"'=1+1, ""said""\nhe"`);
  expect(rest[0]).toContain(",-0.5,");
  expect(rest[0]).toContain(",a b,");
});

test("each run is a line", () => {
  expect(JSON.parse(writeJsonLines([run]))).toEqual(run);
});
