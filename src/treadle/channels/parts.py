"""Long texts in parts that fit in one message of a platform."""

import re
from collections.abc import Callable

from treadle.domain.code_fences import find_open_fence
from treadle.ports.channel import Channel

UNKNOWN_LIMIT = 2000
"""Characters of a part while the platform is not connected."""
_TABLE_RULE = re.compile(r"^ {0,3}\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?[ \t]*$")


def split_for_channel(channel: Channel | None, text: str) -> list[str]:
    """Return a text in parts that a platform accepts."""
    if channel is None:
        return split_message(text, UNKNOWN_LIMIT)
    return split_message(text, channel.traits.max_characters, channel.traits.measure)


def split_message(text: str, limit: int, measure: Callable[[str], int] = len) -> list[str]:
    """Return a text in parts of at most `limit` characters, cut between paragraphs where possible, else between
    lines, sentences or words. `measure` returns how long a part is on the platform.

    A code block that is cut is closed and opened again, and a table that is cut gets its header again."""
    parts: list[str] = []
    rest, opening = text.strip("\n"), ""
    while rest:
        room = limit - len(opening)
        if len(rest) <= room and measure(opening + rest) <= limit:
            parts.append(opening + rest)
            break
        at = _find_cut(rest, min(room, len(rest)) - 4)
        while at > 1 and (length := measure(_close(opening, rest[:at])[0])) > limit:
            at = _find_cut(rest, max(1, min(at - 1, at * limit // length)))
        part, following = _close(opening, rest[:at])
        parts.append(part)
        rest = rest[at:].lstrip("\n")
        opening = following if following.startswith(("`", "~")) or rest.lstrip(" ").startswith("|") else ""
        opening = "" if len(opening) > limit // 2 else opening
    return [part for part in parts if part.strip()]


def _close(opening: str, head: str) -> tuple[str, str]:
    """Return a part whose code block is closed, and what the next part begins with."""
    part = opening + head.rstrip("\n ")
    fence = find_open_fence(part)
    if fence is None:
        return part, _find_table_head(part)
    return f"{part}\n{fence.marks}", f"{fence.marks}{fence.info[:40]}\n"


def _find_cut(text: str, room: int) -> int:
    room = max(room, 1)
    for separator in ("\n\n", "\n", ". ", " "):
        at = text.rfind(separator, room // 3, room)
        if at > 0:
            return at + len(separator)
    return room


def _find_table_head(text: str) -> str:
    """Return the first two lines of the table that a text ends with, or an empty text."""
    lines = text.split("\n")
    for at in range(len(lines) - 1, 0, -1):
        if "|" not in lines[at]:
            break
        if _TABLE_RULE.match(lines[at]) and "|" in lines[at - 1]:
            return f"{lines[at - 1]}\n{lines[at]}\n"
    return ""
