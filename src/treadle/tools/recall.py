"""`recall`: returns the full text of an earlier result that was too long for the context.

The schema offers `start` and `length`. A call may give a `range` instead, as in `recall(call_id, range)`."""

import re
from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta

from treadle.ports.tool import Observation, Subjects, ToolContext, ToolError
from treadle.tools.function import tool

MAX_CHARACTERS = 50_000
_FROM_TO = re.compile(r"\s*(\d{1,15})\s*(?:-|:|\.\.|,|to)\s*(\d{1,15})\s*")
_FROM_THERE = re.compile(r"\s*(-?\d{1,15})\s*[-:]?\s*")


@tool(effect="read", repeatable=True, needs=("results",), name="recall")
async def _recall(
    call_id: str,
    context: ToolContext,
    start: int = 0,
    length: Annotated[int, Meta(ge=1, le=MAX_CHARACTERS)] = 8000,
) -> str:
    """Read more of a tool result that was cut. Its mark names the call_id.

    Args:
        call_id: Id in the mark.
        start: First character; negative: from the end.
        length: Characters to read.
    """
    text = await context.recall(call_id)
    if text is None:
        raise ToolError(
            f"no text is stored for the call `{call_id}`: only results that were cut are stored, under the "
            "call_id in their mark. If the result was not cut, the conversation contains all of it; otherwise call "
            "that tool again."
        )
    first = max(0, len(text) + start) if start < 0 else start
    if first >= len(text):
        raise ToolError(f"the text is {len(text)} characters long, so nothing is at {first}. Use a smaller start.")
    end = min(len(text), first + length)
    further = f"; start={end} reads on" if end < len(text) else "; this is the end"
    return f"{text[first:end]}\n[characters {first}-{end} of {len(text)}{further}]"


class RecallTool:
    """The tool `recall`, which accepts a range of characters too: `"8000-16000"`, `[8000, 16000]`, `"8000-"`, or
    `"-2000"` for the end."""

    spec = _recall.spec

    def parse(self, arguments: str) -> Any:
        return _recall.parse(_replace_range(arguments))

    def subjects(self, arguments: Any) -> Subjects:
        return _recall.subjects(arguments)

    async def run(self, arguments: Any, context: ToolContext) -> str | Observation:
        return await _recall.run(arguments, context)


recall = RecallTool()


def _replace_range(arguments: str) -> str:
    """Return the arguments with `start` and `length` in place of a range. Others stay as they are."""
    if "range" not in arguments:
        return arguments
    try:
        given = msgspec.json.decode(arguments)
    except (msgspec.DecodeError, UnicodeEncodeError, RecursionError):
        return arguments
    if not isinstance(given, dict) or given.keys() & {"start", "length"}:
        return arguments
    fields = cast("dict[str, Any]", given)
    found = _read_range(fields.pop("range", None))
    return arguments if found is None else msgspec.json.encode(fields | found).decode()


def _read_range(given: Any) -> dict[str, int] | None:
    """Return the start and the length of a range; None if it is not one."""
    if isinstance(given, list):
        given = "-".join(str(each) for each in cast("list[Any]", given))
    text = str(given)
    if (pair := _FROM_TO.fullmatch(text)) is not None:
        start, end = int(pair[1]), int(pair[2])
        return {"start": start, "length": min(end - start, MAX_CHARACTERS)} if end > start else None
    if (single := _FROM_THERE.fullmatch(text)) is not None:
        return {"start": int(single[1])}
    return None
