"""A tool call as a reviewer sees it: the decoded values that will run, with nothing hidden."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, cast

from msgspec import Struct

from treadle.domain.permissions import is_exact_pattern, read_exact_pattern
from treadle.surfaces.terminal.text import count_invisible, is_invisible, pieces, reveal, reveal_line

MARGIN, FURTHER = "  │ ", "  ┆ "
"""Before a line of the model's text, and before the rest of a line that is too long for the terminal. With a margin
none of it can pass for a line of Treadle."""
SHORT = 60
"""A value of at most this many characters is printed after its name."""
LEAST_WIDTH, LEAST_ROWS = 20, 9
RowKind = Literal["", "added", "removed", "place"]
"""What a row of a diff is; empty for other rows."""
_DIFF_KINDS: dict[str, RowKind] = {"+": "added", "-": "removed", "@": "place"}


class Row(Struct, frozen=True):
    """A line on the terminal, and the number of characters of the call in it."""

    text: str
    characters: int = 0
    kind: RowKind = ""


class Shown(Struct, frozen=True):
    """What is printed of a call."""

    rows: list[Row]
    is_whole: bool
    """False: the middle is left out."""

    @property
    def lines(self) -> list[str]:
        return [row.text for row in self.rows]


class Decoded(Struct, frozen=True):
    """The arguments of a call as its tool gets them, and what is unusual about their text."""

    values: dict[str, Any] | None
    """None: they are not a JSON object."""
    repeated: tuple[str, ...] = ()
    """Names that are given more than once in one object."""


def decode(arguments: str) -> Decoded:
    repeated: dict[str, None] = {}

    def pairs(found: list[tuple[str, Any]]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for name, value in found:
            if name in made:
                repeated[name] = None
            made[name] = value
        return made

    try:
        values = json.loads(arguments.strip() or "{}", object_pairs_hook=pairs)
    except (ValueError, RecursionError):
        return Decoded(None)
    return Decoded(cast("dict[str, Any]", values) if isinstance(values, dict) else None, tuple(repeated))


def quote_lines(text: str, columns: int) -> list[str]:
    """Return the lines of a text of an agent, each with a margin."""
    return [row.text for row in _add_margin(text, _width(columns))]


def show_call(arguments: str, columns: int, rows: int | None = None) -> Shown:
    """Return the lines for a call; for a call of more than `rows` lines, its beginning and its end."""
    width = _width(columns)
    decoded = decode(arguments)
    whole = list(_rows(arguments, decoded, width))
    return _cut(whole, rows, _warnings(arguments, decoded))


def _cut(whole: list[Row], rows: int | None, warnings: list[Row]) -> Shown:
    most = None if rows is None else max(LEAST_ROWS, rows)
    if most is None or len(whole) <= most:
        return Shown(whole + warnings, True)
    tail = most // 2
    head = most - tail - 1
    left_out = whole[head:-tail]
    characters = sum(row.characters for row in left_out)
    gap = f"  ┄ {characters} characters on {len(left_out)} lines are not shown here; v shows them ┄"
    return Shown([*whole[:head], Row(gap), *whole[-tail:], *warnings], False)


def show_change(tool: str, arguments: str, folder: Path | None, columns: int, rows: int | None = None) -> Shown:
    """Return the lines for a call: the change that it makes to a file of a folder, as a diff, or the call as
    `show_call` does. For more than `rows` lines, the beginning and the end."""
    from treadle.surfaces.terminal.file_changes import find_change  # many commands show no change

    decoded = decode(arguments)
    change = find_change(tool, decoded.values, folder)
    if change is None:
        return show_call(arguments, columns, rows)
    width = _width(columns)
    whole = list(_value_rows(change.facts, width))
    whole += [row for line in change.lines for row in _add_margin(line, width, _DIFF_KINDS.get(line[:1], ""))]
    return _cut(whole, rows, _warnings(arguments, decoded))


def _width(columns: int) -> int:
    return max(LEAST_WIDTH, columns - len(MARGIN) - 1)


def _rows(arguments: str, decoded: Decoded, width: int) -> Iterator[Row]:
    if decoded.values is None:
        yield Row(f"  the arguments, which are not a JSON object ({len(arguments)} characters):")
        yield from _add_margin(arguments, width)
        return
    if not decoded.values:
        yield Row("  (no arguments)")
    yield from _value_rows(decoded.values, width)


def _value_rows(values: dict[str, Any], width: int) -> Iterator[Row]:
    """Yield the rows of arguments, short ones first."""
    texts = {name: _text(value) for name, value in values.items()}
    for name, text in texts.items():
        if _is_short(text):
            yield from _add_margin(f"{name}: {text}", width)
    for name, text in texts.items():
        if not _is_short(text):
            lines = text.count("\n") + (not text.endswith("\n"))
            size = f"{len(text)} characters" + (f", {lines} lines" if lines > 1 else "")
            yield Row(f"  {reveal_line(name, width)} ({size}):")
            yield from _add_margin(text, width)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _is_short(text: str) -> bool:
    return len(text) <= SHORT and "\n" not in text


def _add_margin(text: str, width: int, kind: RowKind = "") -> Iterator[Row]:
    for line in text.split("\n"):
        margin = MARGIN
        for piece in pieces(line, width):
            yield Row(margin + reveal(piece), len(piece), kind)
            margin = FURTHER


def _warnings(arguments: str, decoded: Decoded) -> list[Row]:
    said = [
        Row(f"  ! the arguments name `{reveal_line(name, SHORT)}` twice; the last one counts")
        for name in decoded.repeated
    ]
    texts = [arguments] if decoded.values is None else list(_texts_in(decoded.values))
    if hidden := sum(map(count_invisible, texts)):
        characters = "character that is" if hidden == 1 else "characters that are"
        said.append(Row(f"  ! it has {hidden} {characters} invisible; shown above as <U+…>"))
    return said


def _texts_in(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            for name, item in cast("dict[str, Any]", value).items():
                yield name
                yield from _texts_in(item)
        case list():
            for item in cast("list[Any]", value):
                yield from _texts_in(item)
        case _:
            pass


# ── On one line ──


def summarize_call(arguments: str, width: int | None = None) -> str:
    """Return the arguments on one line: a single value alone, several with their names, short ones first."""
    values = decode(arguments).values
    if values is None:
        return reveal_line(arguments, width)
    texts = {name: _text(value) for name, value in values.items()}
    if len(texts) == 1:
        return reveal_line(next(iter(texts.values())), width)
    ordered = sorted(texts.items(), key=lambda item: not _is_short(item[1]))
    return reveal_line(", ".join(f"{name}: {text}" for name, text in ordered), width)


def readable_json(arguments: str) -> str:
    """Return the arguments as JSON on one line, to copy and change. Invisible characters are escaped."""
    values = decode(arguments).values
    if values is None:
        return reveal_line(arguments)
    text = json.dumps(values, ensure_ascii=False)
    return "".join(json.dumps(character)[1:-1] if is_invisible(character) else character for character in text)


def pretty_json(arguments: str) -> str:
    """Return the arguments as JSON on several lines, for an editor."""
    values = decode(arguments).values
    return arguments if values is None else json.dumps(values, ensure_ascii=False, indent=2) + "\n"


def describe_offer(tool: str, pattern: str) -> str:
    """Return which calls a reviewer can allow, at a place that shows the call."""
    return "exactly this command" if is_exact_pattern(pattern) else describe_rule(tool, pattern)


def describe_rule(tool: str, pattern: str) -> str:
    """Return which calls a remembered approval covers."""
    if (line := read_exact_pattern(pattern)) is not None:
        return f"exactly the command `{reveal_line(line)}`"
    return f"every `{tool}`" if pattern == "*" else f"`{tool}` with `{reveal_line(pattern)}`"
