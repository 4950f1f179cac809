"""Recorded runs: the replies of the model in a run, as a file, and as a script for tests."""

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Protocol

import msgspec
from msgspec import Struct

from treadle.domain.envelope import Event
from treadle.domain.errors import UsageError
from treadle.domain.events import LlmResponse, StopReason
from treadle.domain.ids import RunId
from treadle.domain.messages import Text, Thinking, ToolUse
from treadle.domain.runs import Usage
from treadle.operations import runs
from treadle.operations.operation import Operation, Q, R, list_items
from treadle.testing.models import ScriptedReply


class SavedReply(Struct, frozen=True, omit_defaults=True):
    """A reply of a model, as a recording has it."""

    text: str = ""
    calls: tuple[ToolUse, ...] = ()
    thinking: str = ""
    stop: StopReason | None = None
    usage: Usage = Usage()


class Reader(Protocol):
    """What reads runs: an engine or a client."""

    async def call(self, operation: Operation[Q, R], request: Q, *, key: str | None = None) -> R: ...

    def events(self, run_id: str, after: int = 0) -> AsyncGenerator[Event, None]: ...


async def save_script(reader: Reader, run_id: str, path: str | Path) -> None:
    """Write the replies of the model in a run that has ended, and in the runs below it, to a file.

    They are in the order in which the model gave them. Secrets of the vault are not in them."""
    replies = sorted(await _collect_replies(reader, RunId(run_id)), key=lambda found: found[0])
    content = msgspec.json.format(msgspec.json.encode([reply for _, reply in replies]), indent=2)
    await asyncio.to_thread(Path(path).write_bytes, content + b"\n")


def load_script(path: str | Path) -> list[ScriptedReply]:
    """Return the steps of a recorded run, for a `ScriptedModel`."""
    try:
        replies = msgspec.json.decode(Path(path).read_bytes(), type=list[SavedReply])
    except (OSError, msgspec.DecodeError) as error:
        raise UsageError(f"{path}: it cannot be read as a recorded run: {error}. Record it again.") from None
    return [
        ScriptedReply(
            text=reply.text, calls=reply.calls, thinking=reply.thinking, stop=reply.stop, usage=reply.usage
        )
        for reply in replies
    ]


async def _collect_replies(reader: Reader, run_id: RunId) -> list[tuple[float, SavedReply]]:
    found = [
        (event.timestamp, _make_reply(event.data))
        async for event in reader.events(run_id)
        if isinstance(event.data, LlmResponse)
    ]
    for child in await list_items(reader, runs.CHILDREN, runs.ListChildren(run_id)):
        found += await _collect_replies(reader, child.run_id)
    return found


def _make_reply(data: LlmResponse) -> SavedReply:
    return SavedReply(
        text="".join([part.text for part in data.parts if isinstance(part, Text)]),
        calls=tuple([part for part in data.parts if isinstance(part, ToolUse)]),
        thinking="".join([part.text for part in data.parts if isinstance(part, Thinking)]),
        stop=data.stop,
        usage=data.usage,
    )
