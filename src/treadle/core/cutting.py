"""Shortening what tools have returned: the head and the tail stay, and a mark says how to read what is between."""

from collections.abc import Iterable, Iterator

import msgspec

from treadle.domain.messages import Message, Part, ToolResult

HEAD_SHARE = 0.6
"""Of what is shown of a long text, so much is from its beginning."""
MARK = 160
"""Characters that a mark may take."""


def cut(text: str, room: int, call_id: str) -> str:
    """The head and the tail of a long text, and how to read what is between them."""
    head = int(room * HEAD_SHARE)
    tail = room - head
    left_out = len(text) - head - tail
    how = f'recall(call_id="{call_id}", start={head}) reads on from there'
    return f"{text[:head]}\n[… {left_out} of {len(text)} characters are left out here; {how} …]\n{text[-tail:]}"


def longer_than(messages: Iterable[Message], longest: int) -> Iterator[ToolResult]:
    """The results that are worth cutting to so many characters."""
    for message in messages:
        if message.role == "tool":
            for part in message.parts:
                if isinstance(part, ToolResult) and len(part.content) > longest + MARK:
                    yield part


def with_results_cut(messages: Iterable[Message], calls: frozenset[str], longest: int) -> Iterator[Message]:
    """The messages, where the results of these calls have at most so many characters and the mark."""
    for message in messages:
        if message.role == "tool" and calls:
            parts = tuple([_cut_part(part, calls, longest) for part in message.parts])
            yield msgspec.structs.replace(message, parts=parts)
        else:
            yield message


def _cut_part(part: Part, calls: frozenset[str], longest: int) -> Part:
    if isinstance(part, ToolResult) and part.call_id in calls and len(part.content) > longest + MARK:
        return ToolResult(part.call_id, cut(part.content, longest, part.call_id), part.is_error)
    return part
