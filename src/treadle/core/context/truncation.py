"""Truncation of tool results: the head and the tail stay, and a mark says how to read the middle."""

import re
from collections.abc import Iterable, Iterator

import msgspec

from treadle.domain.messages import Message, Part, ToolResult
from treadle.domain.observations import extract_text, is_truncated, mark_truncated, split_header

HEAD_SHARE = 0.6
"""Share of the shown text that comes from the beginning."""
_LEFT_OUT = re.compile(r"\[… \d+ of (\d+) characters are left out here;")
MARK_CHARACTERS = 160
"""Maximum length of a mark."""


def truncate_text(text: str, max_characters: int, call_id: str, whole: int | None = None) -> str:
    """Return the head and the tail of a long text, with a mark between them.

    `whole` is the original length, if the text was truncated before."""
    head, tail = compute_shown_lengths(max_characters)
    length = len(text) if whole is None else whole
    left_out = length - head - tail
    how = f'recall(call_id="{call_id}", start={head}) reads on from there'
    return f"{text[:head]}\n[… {left_out} of {length} characters are left out here; {how} …]\n{text[-tail:]}"


def compute_shown_lengths(max_characters: int) -> tuple[int, int]:
    """Return how many characters of the beginning and of the end are shown."""
    head = int(max_characters * HEAD_SHARE)
    return head, max_characters - head


def find_long_results(messages: Iterable[Message], max_characters: int) -> Iterator[ToolResult]:
    """Yield the results that are worth truncating to this length."""
    for message in messages:
        if message.role == "tool":
            for part in message.parts:
                if (
                    isinstance(part, ToolResult)
                    and len(extract_text(part.content)) > max_characters + MARK_CHARACTERS
                ):
                    yield part


def truncate_results(messages: Iterable[Message], calls: frozenset[str], max_characters: int) -> Iterator[Message]:
    """Yield the messages with the results of these calls truncated to this length plus the mark."""
    for message in messages:
        if message.role == "tool" and calls:
            parts = tuple([_truncate_part(part, calls, max_characters) for part in message.parts])
            yield msgspec.structs.replace(message, parts=parts)
        else:
            yield message


def _truncate_part(part: Part, calls: frozenset[str], max_characters: int) -> Part:
    if not isinstance(part, ToolResult) or part.call_id not in calls:
        return part
    head, text = split_header(part.content)
    if len(text) <= max_characters + MARK_CHARACTERS:
        return part
    mark = _LEFT_OUT.search(text) if is_truncated(part.content) else None
    shorter = truncate_text(text, max_characters, part.call_id, int(mark[1]) if mark else None)
    return ToolResult(part.call_id, f"{mark_truncated(head)}{shorter}", part.is_error)
