/** Series for charts, from usage by day. */

export const COLORS = ["#4f6bed", "#2f9e63", "#d98a00", "#c4483f", "#8b5cf6", "#0e98a8"];
const OTHERS_COLOR = "#8a8f98";
const MOST = 6;

interface Point<Used> {
  start: string;
  key: string;
  used: Used;
}

/** Return one series for each of the keys with the largest sums, and one for the others together. Times without usage
 * have the value 0. */
export function buildSeries<Used>(
  points: readonly Point<Used>[],
  days: number,
  value: (used: Used) => number,
  others: (count: number) => string,
  now = Date.now(),
) {
  const sums = new Map<string, number>();
  const byKey = new Map<string, Map<number, number>>();
  const found = new Set<number>();
  for (const point of points) {
    const time = Math.floor(new Date(point.start).getTime() / 1000);
    const amount = value(point.used);
    sums.set(point.key, (sums.get(point.key) ?? 0) + amount);
    const of = byKey.get(point.key) ?? new Map<number, number>();
    of.set(time, (of.get(time) ?? 0) + amount);
    byKey.set(point.key, of);
    found.add(time);
  }
  const today = Math.floor(now / 86_400_000) * 86_400;
  if (days <= 120) for (let at = 0; at < days; at++) found.add(today - at * 86_400);
  const times = [...found].sort((one, other) => one - other);
  const keys = [...sums.entries()].sort((one, other) => other[1] - one[1]).map(([key]) => key);
  const addUp = (wanted: readonly string[]) =>
    times.map((time) => wanted.reduce((sum, key) => sum + (byKey.get(key)?.get(time) ?? 0), 0));
  const series = keys
    .slice(0, MOST)
    .map((key, at) => ({ label: key, color: COLORS[at] ?? OTHERS_COLOR, values: addUp([key]) }));
  const rest = keys.slice(MOST);
  if (rest.length) series.push({ label: others(rest.length), color: OTHERS_COLOR, values: addUp(rest) });
  return { times, series };
}
