"""Checks for implementers of `ports.model.Model`."""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
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
    Delta,
    Failed,
    Model,
    ModelRequest,
    Preamble,
    TextDelta,
)

TIMEOUT_SECONDS = 10.0
"""After this time an expected reply counts as missing."""


class ProviderText(Struct, frozen=True):
    """The provider replies with this text, in several pieces if it has several words."""

    text: str


class ProviderCalls(Struct, frozen=True):
    """The provider replies with these calls."""

    calls: tuple[ToolUse, ...]


class ProviderRefusal(Struct, frozen=True):
    """The provider replies with an error."""


class ProviderBreak(Struct, frozen=True):
    """The provider starts with this text and ends without finishing."""

    text: str


class ProviderSilence(Struct, frozen=True):
    """The provider starts with this text and then sends nothing more."""

    text: str


ProviderAction = ProviderText | ProviderCalls | ProviderRefusal | ProviderBreak | ProviderSilence
"""What the provider does with one request."""


class ModelHarness(Protocol):
    """Opens a model whose provider follows instructions."""

    def open(self, *scenes: ProviderAction) -> AbstractAsyncContextManager[Model]:
        """Return a model whose provider performs these actions, one for each request, in order."""
        ...


ModelCheck = Callable[[ModelHarness], Awaitable[None]]

EXAMPLE_CALLS = (ToolUse("call_a", "add", '{"a":1}'), ToolUse("call_b", "add", '{"a":2}'))


def make_request() -> ModelRequest:
    """Return a small conversation with one tool."""
    add = ToolSpec("add", "Add a number.", {"type": "object", "properties": {"a": {"type": "integer"}}})
    return ModelRequest("m-1", Preamble("Be brief.", (add,)), Conversation([user("hello")]), ModelSettings())


class ReceivedReply(Struct):
    """The deltas and the result of one request."""

    end: Completed | Failed
    deltas: list[Delta]

    @property
    def text(self) -> str:
        return "".join(delta.text for delta in self.deltas if isinstance(delta, TextDelta))


async def receive_reply(model: Model, asked: ModelRequest | None = None) -> ReceivedReply:
    """Return a complete reply. Check that nothing is shown after its end."""
    deltas: list[Delta] = []
    async with asyncio.timeout(TIMEOUT_SECONDS):
        end = await model.reply(asked or make_request(), deltas.append)
    shown = len(deltas)
    await asyncio.sleep(0)
    assert len(deltas) == shown, f"shown after the end: {deltas[shown:]}"
    return ReceivedReply(end, deltas)


async def a_reply_ends_completed(harness: ModelHarness) -> None:
    """A reply ends Completed with the whole text. It was shown as it arrived, and the joined pieces are the
    text."""
    async with harness.open(ProviderText("one two three")) as model:
        heard = await receive_reply(model)
        assert isinstance(heard.end, Completed), heard.end
        assert heard.end.parts == (Text("one two three"),)
        assert heard.end.stop == "end_turn"
        assert heard.text == "one two three"
        assert heard.end.usage.input_tokens >= 0
        assert heard.end.usage.output_tokens >= 0


async def calls_are_complete(harness: ModelHarness) -> None:
    """Completed contains the calls in order, with valid arguments. The joined fragments of each call are its
    arguments."""
    async with harness.open(ProviderCalls(EXAMPLE_CALLS)) as model:
        heard = await receive_reply(model)
        assert isinstance(heard.end, Completed), heard.end
        assert heard.end.stop == "tool_use"
        assert tuple(part for part in heard.end.parts if isinstance(part, ToolUse)) == EXAMPLE_CALLS
        shown: dict[int, str] = {}
        for delta in heard.deltas:
            if isinstance(delta, CallDelta):
                shown[delta.index] = shown.get(delta.index, "") + delta.arguments
        assert [shown[index] for index in sorted(shown)] == [use.arguments for use in EXAMPLE_CALLS]
        for use in EXAMPLE_CALLS:
            msgspec.json.decode(use.arguments)


async def an_error_is_a_value(harness: ModelHarness) -> None:
    """An error of the provider is a Failed that says what happened. Nothing is raised."""
    async with harness.open(ProviderRefusal()) as model:
        end = (await receive_reply(model)).end
        assert isinstance(end, Failed), end
        assert end.message


async def an_incomplete_reply_has_failed(harness: ModelHarness) -> None:
    """A reply that ends before its provider has finished is Failed, however much has arrived: half an answer is
    never taken for a whole one."""
    async with harness.open(ProviderBreak("half an")) as model:
        end = (await receive_reply(model)).end
        assert isinstance(end, Failed), end


async def cancelling_aborts_the_call(harness: ModelHarness) -> None:
    """A caller that is cancelled while waiting for a reply gets CancelledError, not Failed. The model can be
    called again."""
    async with harness.open(ProviderSilence("so far"), ProviderText("again")) as model:
        heard = asyncio.Event()
        task = asyncio.create_task(model.reply(make_request(), lambda _: heard.set()))
        async with asyncio.timeout(TIMEOUT_SECONDS):
            await heard.wait()
            task.cancel()
            await asyncio.wait([task])
        assert task.cancelled(), task
        assert isinstance((await receive_reply(model)).end, Completed)


async def replies_do_not_mix(harness: ModelHarness) -> None:
    """One model serves several concurrent requests, each with its own reply."""
    async with harness.open(ProviderText("one one one"), ProviderText("two two two")) as model:
        replies = await asyncio.gather(receive_reply(model), receive_reply(model))
        assert sorted(heard.text for heard in replies) == ["one one one", "two two two"]
        for heard in replies:
            assert isinstance(heard.end, Completed), heard.end
            assert heard.end.parts == (Text(heard.text),)


async def the_request_is_not_changed(harness: ModelHarness) -> None:
    """The conversation belongs to the run: a model reads it and changes nothing."""
    async with harness.open(ProviderText("fine")) as model:
        asked = make_request()
        messages = list(asked.conversation.messages)
        await receive_reply(model, asked)
        assert asked.conversation.messages == messages


CHECKS: Final[tuple[ModelCheck, ...]] = (
    a_reply_ends_completed,
    calls_are_complete,
    an_error_is_a_value,
    an_incomplete_reply_has_failed,
    cancelling_aborts_the_call,
    replies_do_not_mix,
    the_request_is_not_changed,
)
"""Every check of this port."""
