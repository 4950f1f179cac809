"""Calls to a model adapter. An adapter may be third-party code, so whatever it does becomes a reply or a
failure."""

import asyncio
import logging

import msgspec

from treadle.domain.limits import MAX_CALL_NAME_CHARACTERS, MAX_REPORTED_TOKENS
from treadle.domain.messages import Part, Text, Thinking, ToolUse, make_sendable
from treadle.domain.runs import Usage
from treadle.engine.stop_texts import StopTextFound
from treadle.ports.model import Completed, Failed, Model, ModelRequest, RecordedReply, Show
from treadle.ports.vault import Redactor

logger = logging.getLogger(__name__)
REPLY_ENDS = (Completed, Failed)
TEXT_PARTS = (Text, Thinking)
STOPS_THAT_RUN_CALLS = ("tool_use", "end_turn")
"""Stop reasons after which the calls of a reply run."""


async def request_reply(client: Model, request: ModelRequest, show: Show, redactor: Redactor) -> Completed | Failed:
    """Return the model's reply, in characters that can be stored and sent. Cancelling the caller still cancels."""
    try:
        end = await client.reply(request, show)
        if not isinstance(end, REPLY_ENDS):  # pyright: ignore[reportUnnecessaryIsInstance] -- adapters may be unchecked
            raise TypeError(f"it returned {end!r}, not Completed or Failed")
    except StopTextFound:
        raise  # the caller of this call has read enough
    except (Exception, asyncio.CancelledError) as error:
        task = asyncio.current_task()
        if isinstance(error, asyncio.CancelledError) and task is not None and task.cancelling():
            raise  # the caller was cancelled
        return _make_failure(error, request, redactor)
    if isinstance(end, Completed):
        end = end if isinstance(end, RecordedReply) else limit_reply(end, request.max_calls)
        for part in end.parts:
            if not _is_plain(part):
                return _drop_unsafe_calls(msgspec.structs.replace(end, parts=tuple(map(_make_sendable, end.parts))))
        return _drop_unsafe_calls(end)
    return msgspec.structs.replace(end, usage=usage) if (usage := _limit_usage(end.usage)) != end.usage else end


def limit_reply(end: Completed, max_calls: int) -> Completed:
    """Return the reply within the limits of every adapter: without calls beyond the limit, which are counted, with
    names of bounded length, and with plausible token counts."""
    parts, calls = list[Part](), 0
    for part in end.parts:
        if isinstance(part, ToolUse):
            calls += 1
            if calls > max_calls:
                continue
            if len(part.name) > MAX_CALL_NAME_CHARACTERS:
                part = msgspec.structs.replace(part, name=f"{part.name[: MAX_CALL_NAME_CHARACTERS - 1]}…")
        parts.append(part)
    excess = end.excess_calls + max(0, calls - max_calls)
    usage = _limit_usage(end.usage)
    if excess == end.excess_calls and tuple(parts) == end.parts and usage == end.usage:
        return end
    return msgspec.structs.replace(end, parts=tuple(parts), excess_calls=excess, usage=usage)


def _limit_usage(usage: Usage) -> Usage:
    """Return the token counts without those that are negative or enormous, which are mistakes."""
    counts = (usage.input_tokens, usage.output_tokens, usage.cache_read_tokens, usage.cache_write_tokens)
    if all(0 <= count <= MAX_REPORTED_TOKENS for count in counts):
        return usage
    return Usage(*(count if 0 <= count <= MAX_REPORTED_TOKENS else 0 for count in counts), estimated=True)


def _drop_unsafe_calls(end: Completed) -> Completed | Failed:
    """Return the reply without calls that must not run, which are those of a truncated or filtered reply.

    A reply with calls that stopped for an unknown reason is a failure. This check applies to every adapter."""
    if end.stop in STOPS_THAT_RUN_CALLS:
        return end
    calls = tuple([part.name for part in end.parts if isinstance(part, ToolUse)])
    if not calls:
        return end
    if end.stop == "other":
        stop = f"`{end.raw_stop}`" if end.raw_stop else "no known reason"
        return Failed("malformed", f"The reply ended with {stop}, so its calls are not run.", True, next_model=True)
    kept = tuple([part for part in end.parts if not isinstance(part, ToolUse)])
    return msgspec.structs.replace(end, parts=kept, dropped_calls=(*end.dropped_calls, *calls))


def _make_failure(error: BaseException, request: ModelRequest, redactor: Redactor) -> Failed:
    message = f"The model adapter failed: {type(error).__name__}: {make_sendable(str(error))}."
    if redactor.is_idle:
        logger.error("the model adapter for %s failed", request.model, exc_info=error)
    else:  # a traceback may contain a secret
        logger.error("the model adapter for %s failed: %s", request.model, redactor.redact(message).text)
    return Failed("adapter", message, False)


def _is_plain(part: Part) -> bool:
    """Return whether the part needs no check. This is nearly always so, and nearly free."""
    if isinstance(part, TEXT_PARTS):
        return part.text.isascii()
    return not isinstance(part, ToolUse) or (part.arguments.isascii() and part.name.isascii())


def _make_sendable(part: Part) -> Part:
    match part:
        case Text(text):
            return Text(make_sendable(text))
        case Thinking(text=text) if make_sendable(text) != text:  # signed reasoning must not change
            return Thinking(make_sendable(text), part.provider, part.model, field=part.field)
        case ToolUse(call_id, name, arguments):
            return msgspec.structs.replace(
                part, call_id=make_sendable(call_id), name=make_sendable(name), arguments=make_sendable(arguments)
            )
        case _:
            return part
