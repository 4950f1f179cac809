"""The layout of help: paragraphs and two columns, as wide as the terminal. It imports nothing of weight."""

import os
from collections.abc import Sequence

MAX_WIDTH, INDENT = 100, 2


def page(usage: str, text: str, *sections: tuple[str, Sequence[tuple[str, str]]]) -> str:
    """Return a page of help: usage, description, and tables with their titles."""
    width = min(_columns(), MAX_WIDTH)
    paragraphs = ["\n".join(wrap(part, width)) for part in text.split("\n\n")]
    parts = [f"Usage: {usage}", *filter(None, paragraphs)]
    parts += [f"{title}:\n{_table(rows, width)}" for title, rows in sections if rows]
    return "\n\n".join(parts)


def _table(rows: Sequence[tuple[str, str]], width: int) -> str:
    """Return two columns, the second wrapped."""
    left = min(max(len(name) for name, _ in rows), width // 3)
    margin = " " * (INDENT + left + 2)
    lines: list[str] = []
    for name, text in rows:
        first, *rest = wrap(text, width - len(margin)) or [""]
        if len(name) > left:
            lines += [f"{' ' * INDENT}{name}", f"{margin}{first}"]
        else:
            lines.append(f"{' ' * INDENT}{name:<{left}}  {first}".rstrip())
        lines += [f"{margin}{line}" for line in rest]
    return "\n".join(lines)


def wrap(text: str, width: int) -> list[str]:
    """Break a paragraph into lines between words."""
    lines: list[str] = []
    for word in text.split():
        if lines and len(lines[-1]) + 1 + len(word) <= width:
            lines[-1] += f" {word}"
        else:
            lines.append(word)
    return lines


def _columns() -> int:
    try:
        return max(40, int(os.environ.get("COLUMNS") or os.get_terminal_size().columns))
    except (OSError, ValueError):
        return 80
