"""The events of a run as short lines: what a log or a time axis shows, without the payloads."""

from typing import Annotated, Any, cast

import msgspec
from msgspec import Meta, Struct

from treadle.domain.envelope import Event
from treadle.domain.graphemes import truncate
from treadle.domain.ids import RunId
from treadle.operations.context import Context
from treadle.operations.operation import Operation
from treadle.operations.schemas import Page

MAX_LINES = 2_000
TEXT_CHARACTERS = 160


class EventLine(Struct, frozen=True, omit_defaults=True):
    """One event in short."""

    sequence: int
    at: float
    """Seconds since 1970."""
    type: str
    size: int
    """Bytes of its payload."""
    step: int | None = None
    attempt: int | None = None
    call_id: str | None = None
    name: str | None = None
    """The tool, the model or the agent that it concerns."""
    run_id: RunId | None = None
    """The other run that it concerns, such as a child."""
    duration_ms: int | None = None
    text: str = ""
    """The beginning of what it says."""


class ListEventLines(Struct, frozen=True, forbid_unknown_fields=True):
    run_id: RunId
    after: Annotated[int, Meta(ge=0, description="Only events after this sequence.")] = 0
    limit: Annotated[int, Meta(ge=1, le=MAX_LINES, description="How many.")] = 500


class _Payload(Struct, frozen=True):
    """The fields of any event that a line shows."""

    step: Any = None
    attempt: Any = None
    call_id: Any = None
    name: Any = None
    tool: Any = None
    model: Any = None
    agent: Any = None
    run_id: Any = None
    child: Any = None
    child_run_id: Any = None
    duration_ms: Any = None
    text: Any = None
    message: Any = None
    reason: Any = None
    outcome: Any = None
    output: Any = None
    content: Any = None
    question: Any = None
    arguments: Any = None
    parts: Any = None
    detail: Any = None


_decode = msgspec.json.Decoder(_Payload).decode

LINES = Operation(
    "runs.event_lines",
    "GET",
    "/v1/runs/{run_id}/event-lines",
    scope="read",
    request=ListEventLines,
    response=Page[EventLine],
    errors=(404,),
)


@LINES.handler
async def list_event_lines(context: Context, request: ListEventLines) -> Page[EventLine]:
    """List the durable events of a run in short, without their payloads.

    `runs.journal` returns the payloads."""
    record = await context.visible_run(request.run_id)
    lines: list[EventLine] = []
    after = request.after
    while len(lines) < request.limit:
        found = await context.service.page(record.origin.run_id, after, min(request.limit - len(lines), 1000))
        if not found:
            break
        lines += map(make_line, found)
        after = found[-1].sequence
    return Page(tuple(lines), str(after) if lines and after < record.sequence else None)


def make_line(event: Event) -> EventLine:
    """Return an event in short."""
    payload = _decode(event.raw)
    return EventLine(
        sequence=event.sequence,
        at=event.timestamp,
        type=event.type,
        size=len(event.raw),
        step=_number(payload.step),
        attempt=_number(payload.attempt),
        call_id=_word(payload.call_id),
        name=_word(payload.name) or _word(payload.tool) or _word(payload.model) or _word(payload.agent),
        run_id=_run(payload.child_run_id) or _run(payload.child) or _run(payload.run_id),
        duration_ms=_number(payload.duration_ms),
        text=_text(payload),
    )


def _text(payload: _Payload) -> str:
    for value in (
        payload.outcome,
        payload.text,
        payload.message,
        payload.question,
        payload.output,
        payload.reason,
        payload.content,
    ):
        if isinstance(value, str) and value:
            return _cut(value)
        if isinstance(value, dict) and (said := _join_parts(cast("dict[str, Any]", value).get("parts"))):
            return said
    if said := _join_parts(payload.parts):
        return said
    return _cut(payload.arguments) if isinstance(payload.arguments, str) else ""


def _join_parts(parts: Any) -> str:
    if not isinstance(parts, list):
        return ""
    for part in cast("list[Any]", parts):
        text = cast("dict[str, Any]", part).get("text") if isinstance(part, dict) else None
        if isinstance(text, str) and text:
            return _cut(text)
    return ""


def _cut(text: str) -> str:
    return truncate(" ".join(text[: TEXT_CHARACTERS * 2].split()), TEXT_CHARACTERS)


def _number(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def _word(value: Any) -> str | None:
    return value[:200] if isinstance(value, str) and value else None


def _run(value: Any) -> RunId | None:
    return RunId(value) if isinstance(value, str) and value.startswith("run_") else None
