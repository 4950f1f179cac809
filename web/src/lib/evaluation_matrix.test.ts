import { describe, expect, it } from "vitest";
import { makeMatrix, makeScores, toneOf, type CaseResult } from "./evaluation_matrix";

const result = (name: string, target: string, state: CaseResult["state"], repeat = 1) =>
  ({ suite: "s", case: name, target, repeat, state }) as CaseResult;

describe("results of evaluations", () => {
  it("become a row for each case and a cell for each target, with all repeats", () => {
    const rows = makeMatrix(
      [
        result("a", "old", "passed"),
        result("a", "old", "failed", 2),
        result("a", "new", "passed"),
        result("b", "old", "error"),
        result("b", "gone", "passed"),
      ],
      ["old", "new"],
    );
    expect(rows.map((row) => [row.case, row.differs, row.cells.map(toneOf)])).toEqual([
      ["a", true, ["warn", "good"]],
      ["b", true, ["bad", ""]],
    ]);
    expect(rows[0]?.cells[0]).toMatchObject({ passed: 1, results: [{ repeat: 1 }, { repeat: 2 }] });
  });

  it("have the mean score of each day", () => {
    const given = (at: string, score: number) => ({ run_id: "r", author: "a", note: "", at, score });
    const { times, series } = makeScores(
      [given("2026-03-02T10:00:00Z", 1), given("2026-03-01T23:59:00Z", 0), given("2026-03-02T01:00:00Z", 0)],
      "people",
    );
    expect(times.map((each) => new Date(each * 1000).toISOString().slice(0, 10))).toEqual(["2026-03-01", "2026-03-02"]);
    expect(series[0]?.values).toEqual([0, 0.5]);
  });
});
