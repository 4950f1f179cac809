"""What fills the context window: the parts of the latest request, by kind."""

from collections.abc import Iterator
from typing import Literal

import msgspec
from msgspec import Struct

from treadle.domain.messages import Image, Message, Text, Thinking, ToolResult, ToolUse
from treadle.operations.context import Context
from treadle.operations.operation import Operation
from treadle.operations.runs import OneRun

PartKind = Literal["system", "tools", "messages", "answers", "thinking", "calls", "results", "images"]
"""messages: those of the user, with what Treadle adds to them. answers: texts of the model."""

IMAGE_CHARACTERS = 4_000
"""What an image counts: about a thousand tokens, whatever its size in bytes."""


class ContextPart(Struct, frozen=True):
    kind: PartKind
    tokens: int
    """Its share of the estimate of the whole request, by its length."""


class ContextUse(Struct, frozen=True):
    """What fills the context window of a run at its latest step."""

    model: str
    window: int
    """Tokens of the context window."""
    tokens: int
    """The estimated tokens of the request."""
    parts: tuple[ContextPart, ...]
    """The largest first."""


CONTEXT = Operation(
    "runs.context",
    "GET",
    "/v1/runs/{run_id}/context",
    scope="read",
    request=OneRun,
    response=ContextUse,
    errors=(404, 422),
)


@CONTEXT.handler
async def show_context(context: Context, request: OneRun) -> ContextUse:
    """Get what fills the context window of a run, by kind."""
    record = await context.readable_run(request.run_id)
    sent = await context.service.prompt(record.origin.run_id, None)
    asked = sent.request
    sizes: dict[PartKind, int] = {
        "system": len(asked.preamble.system),
        "tools": len(msgspec.json.encode(asked.preamble.tools)),
    }
    for message in asked.conversation.messages:
        for kind, size in _measure(message):
            sizes[kind] = sizes.get(kind, 0) + size
    total, estimate = max(1, sum(sizes.values())), sent.event.input_estimate
    parts = [ContextPart(kind, round(estimate * size / total)) for kind, size in sizes.items() if size]
    return ContextUse(
        model=f"{sent.event.provider}/{sent.event.model}",
        window=sent.model.context_window,
        tokens=estimate,
        parts=tuple(sorted(parts, key=lambda part: -part.tokens)),
    )


def _measure(message: Message) -> Iterator[tuple[PartKind, int]]:
    """Yield the parts of a message with their length in characters."""
    for part in message.sent:
        match part:
            case Text(text=text):
                yield "answers" if message.role == "assistant" else "messages", len(text)
            case Thinking():
                yield "thinking", len(part.text)
            case ToolUse():
                yield "calls", len(part.name) + len(part.arguments)
            case ToolResult():
                yield "results", len(part.content)
            case Image():
                yield "images", IMAGE_CHARACTERS
