"""What commands print: tables and values on standard output, notes and errors on standard error.

Text of models, tools and other people is made harmless for the terminal first (`terminal.inert`)."""

import sys
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import zip_longest
from typing import Any, NamedTuple, TypeVar

import msgspec

from treadle.domain.durations import parse_duration
from treadle.domain.errors import UsageError
from treadle.domain.graphemes import display_width
from treadle.surfaces.terminal.text import (
    columns,
    cut,
    inert,
    inert_json,
    one_line,
    pad,
    supports_colour,
)
from treadle.surfaces.terminal.word_wrap import fold_note, wrap_words

GAP = "  "
SHORT_ID_DIGITS = 12
"""Hexadecimal digits of a short id: the millisecond in which the id was made."""
MINUTE, HOUR, DAY = 60, 3600, 86400
MIN_FIELD_WIDTH = 20
DATES_FROM_DAYS = 7
"""Older times are printed as dates."""
Item = TypeVar("Item")


# ── Notes and errors ───────────────────────────────────────────────────────────────────────────────


def note(line: str) -> None:
    """Print a line for people on standard error, dim where the terminal has colours."""
    for part in fold_note(inert(line.replace("\n", " ")), columns() if sys.stderr.isatty() else None):
        print(f"\x1b[2m{part}\x1b[0m" if supports_colour(sys.stderr) else part, file=sys.stderr, flush=True)


def alert(line: str) -> None:
    """Print a line on standard error that people must read: it is not dimmed."""
    print(inert(line.replace("\n", " ")), file=sys.stderr, flush=True)


def print_error(error: object) -> None:
    """Print why a command failed, in one line on standard error."""
    for part in fold_note(f"treadle: {one_line(str(error))}", columns() if sys.stderr.isatty() else None):
        print(part, file=sys.stderr, flush=True)


# ── Values ─────────────────────────────────────────────────────────────────────────────────────────


def print_json(value: Any) -> None:
    """Print a value as one line of JSON."""
    print_json_line(msgspec.json.encode(value))


def print_json_line(line: bytes) -> None:
    sys.stdout.buffer.write(inert_json(line) + b"\n")


def print_result(value: Any, text: str, *, json: bool) -> None:
    """Print the result of a command: the value as JSON, or a note about it."""
    if json:
        print_json(value)
    else:
        note(text)


def print_fields(fields: Iterable[tuple[str, object]], width: int = 12) -> None:
    """Print names and values below each other; those without a value are left out. On a terminal long values
    continue on further lines."""
    room = max(MIN_FIELD_WIDTH, columns() - width - 1) if sys.stdout.isatty() else None
    for name, value in fields:
        if value not in (None, ""):
            first, *rest = fold_note(one_line(str(value)), room)
            print(f"{name:<{width}} {first}")
            for part in rest:
                print(f"{'':<{width}} {part}")


# ── Tables ─────────────────────────────────────────────────────────────────────────────────────────


class Column(NamedTuple):
    """A column of a table, and what happens to it where the terminal is too narrow for the table."""

    name: str
    shrinks_to: int | None = None
    """Its cells may be truncated to this many characters."""
    is_optional: bool = False
    """It may be left out."""
    is_number: bool = False
    """Its cells are aligned to the right."""
    wraps: bool = False
    """Its cells continue on further lines instead of being truncated. Only the last column can wrap."""


def print_list(
    items: Sequence[Item],
    head: Sequence[str | Column],
    row: Callable[[Item], Sequence[str]],
    *,
    json: bool,
    empty: str,
) -> None:
    """Print items as JSON lines or as a table, or a note if there are none."""
    if json:
        for item in items:
            print_json(item)
    elif items:
        print_table(head, [row(item) for item in items])
    else:
        note(empty)


def print_table(head: Sequence[str | Column], rows: Sequence[Sequence[str]], leads: Sequence[str] = ()) -> None:
    """Print a table that fits the terminal. A pipe or a file gets it whole. `leads` are drawn before the first
    cells, such as the lines of a tree."""
    layout = [each if isinstance(each, Column) else Column(each) for each in head]
    lines = [[column.name for column in layout], *([one_line(cell) for cell in row] for row in rows)]
    lines[1:] = [[f"{lead}{line[0]}", *line[1:]] for lead, line in zip_longest(leads, lines[1:], fillvalue="")]
    natural = [max(display_width(line[index]) for line in lines) for index in range(len(layout))]
    available = columns() if sys.stdout.isatty() else None
    widths = natural if available is None else fit(layout, natural, available)
    shown = [index for index, width in enumerate(widths) if width]
    for line in lines:
        *cells, last = [_cell(layout[index], line[index], widths[index]) for index in shown]
        first, *rest = [last] if not layout[-1].wraps else wrap_words(line[-1], widths[-1]) or [""]
        print(cut(GAP.join((*cells, first)).rstrip(), available))
        margin = " " * (_line_width(widths[:-1]) + len(GAP))
        for part in rest:
            print(cut(f"{margin}{part}", available))


def _cell(column: Column, text: str, width: int) -> str:
    shown = cut(text, width)
    return f"{' ' * (width - display_width(shown))}{shown}" if column.is_number else pad(shown, width)


def fit(layout: Sequence[Column], natural: Sequence[int], available: int) -> list[int]:
    """Return the widths of the columns; 0 for a column that is left out."""
    widths = list(natural)
    optional = [index for index, column in enumerate(layout) if column.is_optional]
    while (excess := _line_width(widths) - available) > 0:
        room = {
            index: widths[index] - max(column.shrinks_to, len(column.name))
            for index, column in enumerate(layout)
            if column.shrinks_to is not None and widths[index] > max(column.shrinks_to, len(column.name))
        }
        if sum(room.values()) >= excess:
            _shrink(widths, room, excess)
        elif optional:
            widths[optional.pop()] = 0
        else:
            _shrink(widths, room, sum(room.values()))
            break
    return widths


def _line_width(widths: Sequence[int]) -> int:
    shown = [width for width in widths if width]
    return sum(shown) + len(GAP) * (len(shown) - 1)


def _shrink(widths: list[int], room: dict[int, int], excess: int) -> None:
    """Take the excess from the columns that have room, from the widest first."""
    for _ in range(excess):
        widest = max((index for index, left in room.items() if left > 0), key=lambda index: widths[index])
        widths[widest] -= 1
        room[widest] -= 1


# ── Ids, times and amounts ─────────────────────────────────────────────────────────────────────────


def short_id(full: str) -> str:
    """Return the beginning of an id, which commands accept in its place."""
    prefix, mark, digits = full.partition("_")
    return f"{prefix}{mark}{digits[:SHORT_ID_DIGITS]}" if mark else full


def short_ids(ids: Sequence[str]) -> list[str]:
    """Return the ids shortened as far as they stay different."""
    shortened = [short_id(each) for each in ids]
    return [full if shortened.count(short) > 1 else short for full, short in zip(ids, shortened, strict=True)]


def when(at: datetime | None, now: datetime | None = None) -> str:
    """Return a time as people say it: relative if it is near, else the date in the local zone."""
    if at is None:
        return "never"
    seconds = (at - (now or datetime.now(UTC))).total_seconds()
    distance = abs(seconds)
    if distance < MINUTE:
        return "now" if seconds > -5 and seconds < 5 else _relative(distance, 1, "s", seconds)
    if distance < HOUR:
        return _relative(distance, MINUTE, "min", seconds)
    if distance < DAY:
        return _relative(distance, HOUR, "h", seconds)
    if distance < DATES_FROM_DAYS * DAY:
        return _relative(distance, DAY, "d", seconds)
    return f"{at.astimezone():%Y-%m-%d}"


def _relative(distance: float, unit: int, name: str, seconds: float) -> str:
    count = f"{int(distance // unit)} {name}"
    return f"{count} ago" if seconds < 0 else f"in {count}"


def parse_since(text: str, now: datetime | None = None) -> datetime:
    """Return the time that `2h` or `7d` before now is, or a day such as 2026-03-01 in the local zone."""
    try:
        return datetime.fromisoformat(text).astimezone()
    except ValueError:
        pass
    try:
        return (now or datetime.now(UTC)) - timedelta(seconds=parse_duration(text))
    except (ValueError, OverflowError):
        raise UsageError(f"--since is `{text}`; accepted: a duration such as 2h or 7d, or a day.") from None


def local_time(at: datetime) -> str:
    """Return a time in the local zone, with the zone."""
    return f"{at.astimezone():%Y-%m-%d %H:%M:%S %Z}"


def format_count(number: int, noun: str, plural: str = "") -> str:
    """Return a number with its noun: `1 run`, `1,200 runs`."""
    return f"{number:,} {noun if number == 1 else plural or f'{noun}s'}"
