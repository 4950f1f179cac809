import { describe, expect, it } from "vitest";
import { buildSeries } from "./usage_series";

const NOW = Date.UTC(2026, 2, 3, 12);
const others = (count: number) => `${count} others`;

describe("usage series", () => {
  it("has a value for every day, and adds up what is not shown alone", () => {
    const points = Array.from({ length: 8 }, (_, at) => ({ start: "2026-03-02", key: `k${at}`, used: 10 - at }));
    const { times, series } = buildSeries(points, 3, (used) => used, others, NOW);
    expect(times).toHaveLength(3);
    expect(series.map((each) => each.label)).toEqual(["k0", "k1", "k2", "k3", "k4", "k5", "2 others"]);
    expect(series[0]?.values).toEqual([0, 10, 0]);
    expect(series.at(-1)?.values).toEqual([0, 4 + 3, 0]);
  });
});
