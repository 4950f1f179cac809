"""Checks for implementers of `ports.model.Model`."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager, aclosing
from typing import Final, Protocol

import msgspec
from msgspec import Struct

from treadle.domain.agents import ModelSettings
from treadle.domain.messages import Text, ToolUse, user
from treadle.domain.tools import ToolSpec
from treadle.ports.model import (
    CallDelta,
    Completed,
    Conversation,
    Failed,
    Model,
    ModelEvent,
    ModelRequest,
    Preamble,
    TextDelta,
)

PATIENCE = 10.0
"""Seconds after which what should have come is said to be missing."""


class Says(Struct, frozen=True):
    """The provider answers with this text, in more than one piece where it has more than one word."""

    text: str


class Calls(Struct, frozen=True):
    """The provider answers with these calls."""

    calls: tuple[ToolUse, ...]


class Refuses(Struct, frozen=True):
    """The provider answers with an error."""


class BreaksOff(Struct, frozen=True):
    """The provider begins with this text and then ends without having finished."""

    text: str


class FallsSilent(Struct, frozen=True):
    """The provider begins with this text and then says nothing more."""

    text: str


Scene = Says | Calls | Refuses | BreaksOff | FallsSilent
"""What the provider does with one request."""


class ModelHarness(Protocol):
    """How a model is opened whose provider does as it is told."""

    def open(self, *scenes: Scene) -> AbstractAsyncContextManager[Model]:
        """A model whose provider plays these scenes, one for each request, in the order of the requests."""
        ...


ModelCheck = Callable[[ModelHarness], Awaitable[None]]

CALLS = (ToolUse("call_a", "add", '{"a":1}'), ToolUse("call_b", "add", '{"a":2}'))


def request() -> ModelRequest:
    """A small conversation with one tool."""
    add = ToolSpec("add", "Add a number.", {"type": "object", "properties": {"a": {"type": "integer"}}})
    return ModelRequest("m-1", Preamble("Be brief.", (add,)), Conversation([user("hello")]), ModelSettings())


async def collect(model: Model) -> list[ModelEvent]:
    """The whole stream of one request."""
    async with asyncio.timeout(PATIENCE):
        return [event async for event in model.stream(request())]


def ending(events: list[ModelEvent]) -> Completed | Failed:
    """The last value; checks that it, and no other, is Completed or Failed."""
    ends = [event for event in events if isinstance(event, Completed | Failed)]
    assert len(ends) == 1, f"{len(ends)} ends in {events}"
    assert events[-1] is ends[0], f"the end is not last in {events}"
    return ends[0]


async def a_reply_ends_completed(harness: ModelHarness) -> None:
    """A reply ends in one Completed, which comes last and holds the whole text; the text was shown as it came,
    and the pieces joined are the text."""
    async with harness.open(Says("one two three")) as model:
        events = await collect(model)
        end = ending(events)
        assert isinstance(end, Completed), end
        assert end.parts == (Text("one two three"),)
        assert end.stop == "end_turn"
        pieces = [event.text for event in events if isinstance(event, TextDelta)]
        assert "".join(pieces) == "one two three"
        assert end.usage.input_tokens >= 0
        assert end.usage.output_tokens >= 0


async def calls_come_whole(harness: ModelHarness) -> None:
    """Calls are in the Completed in their order, with arguments that parse; the fragments that were shown of
    each, joined, are its arguments."""
    async with harness.open(Calls(CALLS)) as model:
        events = await collect(model)
        end = ending(events)
        assert isinstance(end, Completed), end
        assert end.stop == "tool_use"
        assert tuple(part for part in end.parts if isinstance(part, ToolUse)) == CALLS
        shown: dict[int, str] = {}
        for event in events:
            if isinstance(event, CallDelta):
                shown[event.index] = shown.get(event.index, "") + event.arguments
        assert [shown[index] for index in sorted(shown)] == [use.arguments for use in CALLS]
        for use in CALLS:
            msgspec.json.decode(use.arguments)


async def an_error_is_a_value(harness: ModelHarness) -> None:
    """An error of the provider ends the stream in one Failed that says what happened; nothing is raised."""
    async with harness.open(Refuses()) as model:
        end = ending(await collect(model))
        assert isinstance(end, Failed), end
        assert end.message


async def a_reply_that_breaks_off_has_failed(harness: ModelHarness) -> None:
    """A stream that ends before its provider has finished is Failed, however much has come: half an answer is
    never taken for a whole one."""
    async with harness.open(BreaksOff("half an")) as model:
        end = ending(await collect(model))
        assert isinstance(end, Failed), end


async def closing_early_is_clean(harness: ModelHarness) -> None:
    """Closing the generator in the middle aborts the call: it returns, raises nothing, and the model can be asked
    again."""
    async with harness.open(FallsSilent("so far"), Says("again")) as model:
        async with asyncio.timeout(PATIENCE):
            async with aclosing(model.stream(request())) as stream:
                first = await anext(stream)
                assert not isinstance(first, Completed | Failed), first
        assert isinstance(ending(await collect(model)), Completed)


async def cancelling_is_not_a_failure(harness: ModelHarness) -> None:
    """A reader that is cancelled while it waits is cancelled: the stream does not turn that into a Failed."""
    async with harness.open(FallsSilent("so far")) as model:
        seen: list[ModelEvent] = []
        heard = asyncio.Event()

        async def read() -> None:
            async with aclosing(model.stream(request())) as stream:
                async for event in stream:
                    seen.append(event)
                    heard.set()

        task = asyncio.create_task(read())
        async with asyncio.timeout(PATIENCE):
            await heard.wait()
            task.cancel()
            await asyncio.wait([task])
        assert task.cancelled(), task
        assert not any(isinstance(event, Completed | Failed) for event in seen), seen


async def a_stream_that_is_not_read_costs_nothing(harness: ModelHarness) -> None:
    """Asking for a stream sends nothing before it is read, and one that was never read can be closed."""
    async with harness.open(Says("the only one")) as model:
        await model.stream(request()).aclose()
        assert isinstance(ending(await collect(model)), Completed)


async def streams_do_not_mix(harness: ModelHarness) -> None:
    """One model serves several requests at the same time, each with its own reply."""
    async with harness.open(Says("one one one"), Says("two two two")) as model, asyncio.timeout(PATIENCE):
        async with aclosing(model.stream(request())) as first, aclosing(model.stream(request())) as second:
            streams = (first, second)
            events: tuple[list[ModelEvent], list[ModelEvent]] = ([], [])
            while not all(map(_ended, events)):
                for stream, seen in zip(streams, events, strict=True):
                    if not _ended(seen):
                        seen.append(await anext(stream))
        texts = ["".join(event.text for event in seen if isinstance(event, TextDelta)) for seen in events]
        assert texts == ["one one one", "two two two"]


def _ended(events: list[ModelEvent]) -> bool:
    return bool(events) and isinstance(events[-1], Completed | Failed)


async def the_request_is_left_as_it_was(harness: ModelHarness) -> None:
    """The conversation is the run's own: a model reads it and changes nothing."""
    async with harness.open(Says("fine")) as model, asyncio.timeout(PATIENCE):
        asked = request()
        messages = list(asked.conversation.messages)
        [_ async for _ in model.stream(asked)]
        assert asked.conversation.messages == messages


CHECKS: Final[tuple[ModelCheck, ...]] = (
    a_reply_ends_completed,
    calls_come_whole,
    an_error_is_a_value,
    a_reply_that_breaks_off_has_failed,
    closing_early_is_clean,
    cancelling_is_not_a_failure,
    a_stream_that_is_not_read_costs_nothing,
    streams_do_not_mix,
    the_request_is_left_as_it_was,
)
"""Every check of this port."""
