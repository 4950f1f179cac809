"""Shortening what tools have returned: the head and the tail stay, and a mark says how to read what is between."""

import re
from collections.abc import Iterable, Iterator

import msgspec

from treadle.domain.messages import Message, Part, ToolResult
from treadle.domain.observations import marked_cut, parted, text_of, was_cut

HEAD_SHARE = 0.6
"""Of what is shown of a long text, so much is from its beginning."""
_LEFT_OUT = re.compile(r"\[… \d+ of (\d+) characters are left out here;")
MARK_CHARACTERS = 160
"""Characters that a mark may take."""


def truncate_text(text: str, room: int, call_id: str, whole: int | None = None) -> str:
    """The head and the tail of a long text, and how to read what is between them. `whole` is how long it was before
    it was cut for the first time."""
    head = int(room * HEAD_SHARE)
    tail = room - head
    length = len(text) if whole is None else whole
    left_out = length - head - tail
    how = f'recall(call_id="{call_id}", start={head}) reads on from there'
    return f"{text[:head]}\n[… {left_out} of {length} characters are left out here; {how} …]\n{text[-tail:]}"


def find_long_results(messages: Iterable[Message], longest: int) -> Iterator[ToolResult]:
    """The results that are worth cutting to so many characters."""
    for message in messages:
        if message.role == "tool":
            for part in message.parts:
                if isinstance(part, ToolResult) and len(text_of(part.content)) > longest + MARK_CHARACTERS:
                    yield part


def truncate_results(messages: Iterable[Message], calls: frozenset[str], longest: int) -> Iterator[Message]:
    """The messages, where the results of these calls have at most so many characters and the mark."""
    for message in messages:
        if message.role == "tool" and calls:
            parts = tuple([_truncate_part(part, calls, longest) for part in message.parts])
            yield msgspec.structs.replace(message, parts=parts)
        else:
            yield message


def _truncate_part(part: Part, calls: frozenset[str], longest: int) -> Part:
    if not isinstance(part, ToolResult) or part.call_id not in calls:
        return part
    head, text = parted(part.content)
    if len(text) <= longest + MARK_CHARACTERS:
        return part
    found = _LEFT_OUT.search(text) if was_cut(part.content) else None
    shorter = truncate_text(text, longest, part.call_id, int(found[1]) if found else None)
    return ToolResult(part.call_id, f"{marked_cut(head)}{shorter}", part.is_error)
