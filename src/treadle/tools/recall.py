"""`recall`: returns the full text of an earlier result that was too long for the context."""

from typing import Annotated

from msgspec import Meta

from treadle.ports.tool import ToolContext, ToolError
from treadle.tools.function import tool

MAX_CHARACTERS = 50_000


@tool(effect="read", repeatable=True, needs=("results",))
async def recall(
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
