"""Asking a model through its adapter, which may be anybody's: whatever it does comes back as a reply or a
failure."""

import asyncio
import logging

import msgspec

from treadle.domain.messages import Part, Text, Thinking, ToolUse, sendable
from treadle.ports.model import Completed, Failed, Model, ModelRequest, Show
from treadle.ports.vault import Redactor

logger = logging.getLogger(__name__)
ENDS = (Completed, Failed)
WORDS = (Text, Thinking)


async def reply_of(client: Model, request: ModelRequest, show: Show, redactor: Redactor) -> Completed | Failed:
    """The reply, in characters that can be kept and sent. Cancelling whoever asks still cancels."""
    try:
        end = await client.reply(request, show)
        if not isinstance(end, ENDS):  # pyright: ignore[reportUnnecessaryIsInstance] -- adapters may be unchecked
            raise TypeError(f"it returned {end!r}, not Completed or Failed")
    except (Exception, asyncio.CancelledError) as fault:
        task = asyncio.current_task()
        if isinstance(fault, asyncio.CancelledError) and task is not None and task.cancelling():
            raise  # somebody's wish, and not the adapter's own doing
        return _failed(fault, request, redactor)
    if isinstance(end, Completed):
        for part in end.parts:
            if not _is_plain(part):
                return msgspec.structs.replace(end, parts=tuple(map(_made_sendable, end.parts)))
    return end


def _failed(fault: BaseException, request: ModelRequest, redactor: Redactor) -> Failed:
    message = f"The model adapter failed: {type(fault).__name__}: {sendable(str(fault))}."
    if redactor.is_idle:
        logger.error("the model adapter for %s failed", request.model, exc_info=fault)
    else:  # a traceback may hold anything
        logger.error("the model adapter for %s failed: %s", request.model, redactor.redact(message).text)
    return Failed("adapter", message, False)


def _is_plain(part: Part) -> bool:
    """Whether nothing need be looked at: nearly always, and nearly free."""
    if isinstance(part, WORDS):
        return part.text.isascii()
    return not isinstance(part, ToolUse) or (part.arguments.isascii() and part.name.isascii())


def _made_sendable(part: Part) -> Part:
    match part:
        case Text(text):
            return Text(sendable(text))
        case Thinking(text=text) if sendable(text) != text:  # what was signed cannot be changed
            return Thinking(sendable(text), part.provider, part.model)
        case ToolUse(call_id, name, arguments):
            return ToolUse(sendable(call_id), sendable(name), sendable(arguments))
        case _:
            return part
