/** Differences of two texts, line by line. */

export interface DiffLine {
  kind: "same" | "added" | "removed";
  text: string;
}

const MAX_LINES = 4000;

/** Return the lines of both texts with what was added and removed. Long texts are compared by their ends only. */
export function diffLines(before: string, after: string): DiffLine[] {
  const old = before.split("\n");
  const now = after.split("\n");
  let head = 0;
  while (head < old.length && head < now.length && old[head] === now[head]) head++;
  let tail = 0;
  while (
    tail < old.length - head &&
    tail < now.length - head &&
    old[old.length - 1 - tail] === now[now.length - 1 - tail]
  )
    tail++;
  const same = (text: string): DiffLine => ({ kind: "same", text });
  const middle = compare(old.slice(head, old.length - tail), now.slice(head, now.length - tail));
  return [...old.slice(0, head).map(same), ...middle, ...(tail ? old.slice(-tail).map(same) : [])];
}

function compare(old: string[], now: string[]): DiffLine[] {
  if (old.length * now.length > MAX_LINES * 1000) {
    return [
      ...old.map((text): DiffLine => ({ kind: "removed", text })),
      ...now.map((text): DiffLine => ({ kind: "added", text })),
    ];
  }
  // the longest common subsequence
  const width = now.length + 1;
  const table = new Uint32Array((old.length + 1) * width);
  for (let i = old.length - 1; i >= 0; i--) {
    for (let j = now.length - 1; j >= 0; j--) {
      table[i * width + j] =
        old[i] === now[j]
          ? (table[(i + 1) * width + j + 1] ?? 0) + 1
          : Math.max(table[(i + 1) * width + j] ?? 0, table[i * width + j + 1] ?? 0);
    }
  }
  const lines: DiffLine[] = [];
  let i = 0;
  let j = 0;
  while (i < old.length || j < now.length) {
    if (i < old.length && j < now.length && old[i] === now[j]) {
      lines.push({ kind: "same", text: old[i] ?? "" });
      i++;
      j++;
    } else if (
      j >= now.length ||
      (i < old.length && (table[(i + 1) * width + j] ?? 0) >= (table[i * width + j + 1] ?? 0))
    ) {
      lines.push({ kind: "removed", text: old[i++] ?? "" });
    } else lines.push({ kind: "added", text: now[j++] ?? "" });
  }
  return lines;
}
