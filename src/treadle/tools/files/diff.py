"""Formats a change to a text as a diff of the surrounding lines. The rest of the text is not examined."""

from bisect import bisect_right

CONTEXT_LINES = 3
MAX_SHOWN_CHANGES = 5
"""How many places of one change are shown."""
MAX_LINES = 40
"""How many removed or added lines are shown for one place."""


def format_changes(text: str, starts: list[int], old: str, new: str) -> str:
    """Return the diff of the places where `new` replaced `old`."""
    lines = text.split("\n")
    ends = _next_line_starts(lines)
    shift = 0
    hunks: list[str] = []
    for start in starts[:MAX_SHOWN_CHANGES]:
        first = bisect_right(ends, start)
        last = bisect_right(ends, start + len(old) - 1) if old else first
        last = min(last, len(lines) - 1)
        if old.endswith("\n"):
            last = min(last + 1, len(lines) - 1)
        line_start = ends[first - 1] if first else 0
        before = "\n".join(lines[first : last + 1])
        at = start - line_start
        after = before[:at] + new + before[at + len(old) :]
        hunks.append(_format_hunk(lines, first, before.split("\n"), after.split("\n"), shift))
        shift += new.count("\n") - old.count("\n")
    left = len(starts) - len(hunks)
    return "\n".join([*hunks, *([f"[… and {left} more places]"] if left else [])])


def _next_line_starts(lines: list[str]) -> list[int]:
    """Return where the line after each line starts."""
    ends: list[int] = []
    at = 0
    for line in lines:
        at += len(line) + 1
        ends.append(at)
    return ends


def _format_hunk(lines: list[str], first: int, before: list[str], after: list[str], shift: int) -> str:
    while before and after and before[-1] == after[-1]:
        before, after = before[:-1], after[:-1]
    while before and after and before[0] == after[0]:
        before, after, first = before[1:], after[1:], first + 1
    lead = lines[max(0, first - CONTEXT_LINES) : first]
    trail = lines[first + len(before) : first + len(before) + CONTEXT_LINES]
    if trail and first + len(before) + len(trail) == len(lines) and not trail[-1]:
        trail = trail[:-1]  # the text after the last newline is not a line
    around = len(lead) + len(trail)
    top = first - len(lead) + 1
    return "\n".join([
        f"@@ -{top},{around + len(before)} +{top + shift},{around + len(after)} @@",
        *_mark_lines(" ", lead),
        *_mark_lines("-", before),
        *_mark_lines("+", after),
        *_mark_lines(" ", trail),
    ])  # fmt: skip


def _mark_lines(mark: str, lines: list[str]) -> list[str]:
    marked = [f"{mark}{line.removesuffix(chr(13))}" for line in lines[:MAX_LINES]]
    if len(lines) > MAX_LINES:
        marked.append(f"{mark}[… {len(lines) - MAX_LINES} more lines]")
    return marked
