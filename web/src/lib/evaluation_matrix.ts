/** The results of an evaluation as a matrix of cases by targets, and results over time as series. */

import type { Schemas } from "./api.svelte";
import { COLORS } from "./usage_series";

export type CaseResult = Schemas["CaseResult"];

export interface Cell {
  target: string;
  results: CaseResult[];
  passed: number;
}

export interface CaseRow {
  suite: string;
  case: string;
  cells: Cell[];
  /** Whether the targets differ. */
  differs: boolean;
}

/** Return a row for each case, with a cell for each target. */
export function makeMatrix(results: readonly CaseResult[], targets: readonly string[]): CaseRow[] {
  const rows = new Map<string, CaseRow>();
  for (const result of results) {
    const key = JSON.stringify([result.suite, result.case]);
    let row = rows.get(key);
    if (!row) {
      const cells = targets.map((target) => ({ target, results: [] as CaseResult[], passed: 0 }));
      rows.set(key, (row = { suite: result.suite, case: result.case, cells, differs: false }));
    }
    const cell = row.cells.find((each) => each.target === result.target);
    if (!cell) continue;
    cell.results.push(result);
    if (result.state === "passed") cell.passed++;
  }
  const shareOf = ({ passed, results }: Cell) => (results.length ? passed / results.length : -1);
  for (const row of rows.values()) row.differs = new Set(row.cells.map(shareOf)).size > 1;
  return [...rows.values()];
}

/** Return whether all, some or none of the results of a cell passed. Empty: there are none. */
export function toneOf({ passed, results }: Cell): "" | "good" | "warn" | "bad" {
  if (!results.length) return "";
  return passed === results.length ? "good" : passed ? "warn" : "bad";
}

const MOST_SERIES = 6;

/** Return a series of shares for each target, over the ends of the evaluations. */
export function makeRates(evaluations: readonly Schemas["EvaluationView"][]) {
  const sorted = [...evaluations].sort((one, other) => Date.parse(one.ended_at) - Date.parse(other.ended_at));
  const times = sorted.map((each) => Date.parse(each.ended_at) / 1000);
  const labels = [...new Set(sorted.flatMap((each) => each.targets.map((one) => one.target)))];
  const series = labels.slice(-MOST_SERIES).map((label, index) => ({
    label,
    color: COLORS[index] ?? "#888888",
    values: sorted.map((each) => {
      const rate = each.targets.find((one) => one.target === label)?.rate;
      return rate?.total ? rate.passed / rate.total : null;
    }),
  }));
  return { times, series };
}

/** Return the mean score of each day, for a chart. */
export function makeScores(feedback: readonly Schemas["FeedbackView"][], label: string) {
  const days = new Map<number, number[]>();
  for (const { at, score } of feedback) {
    const day = Math.floor(Date.parse(at) / 86_400_000) * 86_400;
    days.set(day, [...(days.get(day) ?? []), score]);
  }
  const times = [...days.keys()].sort((one, other) => one - other);
  const mean = (scores: number[]) => scores.reduce((sum, each) => sum + each, 0) / scores.length;
  const values = times.map((day) => mean(days.get(day) ?? []));
  return { times, series: [{ label, color: COLORS[0] ?? "#888888", values }] };
}
