"""Models without a provider: one that follows a script, one that calls a function."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from treadle.domain.events import ModelErrorKind, StopReason
from treadle.domain.messages import Part, Text, Thinking, ToolUse
from treadle.domain.runs import Usage
from treadle.ports.model import (
    CallDelta,
    Completed,
    Conversation,
    Failed,
    ModelRequest,
    ReasoningDelta,
    Show,
    TextDelta,
)

Check = Callable[[ModelRequest], None]
"""Inspects the request that a step answers, and raises AssertionError if it is not as expected."""


class ScriptedReply(Struct, frozen=True):
    """One step of a script: the reply of the model, sent word by word."""

    text: str = ""
    calls: tuple[ToolUse, ...] = ()
    thinking: str = ""
    stop: StopReason | None = None
    usage: Usage = Usage(input_tokens=10, output_tokens=5)
    check: Check | None = None
    seconds: float = 0.0
    """How long each word takes."""


class ScriptedFailure(Struct, frozen=True):
    """One step of a script: the call fails, optionally after some text."""

    kind: ModelErrorKind = "overloaded"
    message: str = "the scripted provider is overloaded"
    retryable: bool = True
    retry_after: float | None = None
    text: str = ""
    usage: Usage = Usage()
    compact: bool = False
    repair: bool = False
    next_key: bool = False
    next_model: bool = False
    status: int | None = None
    once: bool = False
    longest_reply: int | None = None
    unclear: bool = False
    filtered: bool = False


class Silence(Struct, frozen=True):
    """One step of a script: some text, then nothing more until the call is cancelled."""

    text: str = ""


ScriptStep = ScriptedReply | ScriptedFailure | Silence | ToolUse | str
"""A string is a reply with this text, and a call a reply with this call."""
LateStep = Callable[[ModelRequest], ScriptStep]
"""A step that depends on the request, for example on the result of a tool."""


def say(text: str, **more: Any) -> ScriptedReply:
    """Return a reply that is the answer. `more` has other fields of the reply, such as its `usage`."""
    return ScriptedReply(text, **more)


def call(name: str, call_id: str | None = None, /, **arguments: Any) -> ToolUse:
    """Return a call for a `ScriptedReply`. Its id is the tool's name unless given."""
    return ToolUse(call_id or f"call_{name}", name, msgspec.json.encode(arguments).decode())


def ask(*calls: ToolUse, text: str = "", **more: Any) -> ScriptedReply:
    """Return a reply that asks for tool calls, after a text."""
    return ScriptedReply(text, calls, **more)


class ScriptedModel:
    """Answers each request with the next step of its script. A request beyond the script raises AssertionError,
    and so does `finish` if a step was not used. `requests` records the requests as values that no longer
    change."""

    def __init__(self, *script: ScriptStep | LateStep) -> None:
        self._script = list(script)
        self.requests: list[ModelRequest] = []

    async def reply(self, request: ModelRequest, show: Show) -> Completed | Failed:
        frozen = Conversation(request.conversation.messages)
        self.requests.append(msgspec.structs.replace(request, conversation=frozen))
        number = len(self.requests)
        if not self._script:
            raise AssertionError(f"request {number} is not in the script, which ended before it")
        planned = self._script.pop(0)
        step = planned(request) if callable(planned) else planned
        if isinstance(step, ScriptedReply) and step.check is not None:
            step.check(request)
        return await perform(step, show)

    def finish(self) -> None:
        """Assert that every step was used."""
        if self._script:
            raise AssertionError(f"{len(self._script)} steps of the script were not used: {self._script}")

    def __enter__(self) -> "ScriptedModel":
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self.finish()


class FunctionModel:
    """Answers each request with the result of a function, for runs whose order is not known beforehand. The
    function may be async."""

    def __init__(self, answer: LateStep | Callable[[ModelRequest], Awaitable[ScriptStep]]) -> None:
        self._answer = answer

    async def reply(self, request: ModelRequest, show: Show) -> Completed | Failed:
        step = self._answer(request)
        return await perform(await step if inspect.isawaitable(step) else step, show)


async def perform(step: ScriptStep, show: Show, pause: Callable[[], float] = lambda: 0.0) -> Completed | Failed:
    """Reply with a step of a script as a model would, with `pause` seconds before each piece."""
    match step:
        case str():
            step = say(step)
        case ToolUse():
            step = ask(step)
        case _:
            pass
    if isinstance(step, ScriptedReply) and step.thinking:
        await asyncio.sleep(pause())
        show(ReasoningDelta(step.thinking))
    for word in words(step.text):
        await asyncio.sleep(pause() + (step.seconds if isinstance(step, ScriptedReply) else 0.0))
        show(TextDelta(word))
    match step:
        case ScriptedReply():
            for index, use in enumerate(step.calls):
                await asyncio.sleep(pause())
                show(CallDelta(index, use.name, use.arguments))
            await asyncio.sleep(pause())
            return Completed(_parts(step), step.stop or ("tool_use" if step.calls else "end_turn"), step.usage)
        case ScriptedFailure():
            return Failed(
                step.kind,
                step.message,
                step.retryable,
                step.status,
                retry_after=step.retry_after,
                usage=step.usage,
                compact=step.compact,
                repair=step.repair,
                next_key=step.next_key,
                next_model=step.next_model,
                once=step.once,
                longest_reply=step.longest_reply,
                unclear=step.unclear,
                filtered=step.filtered,
            )
        case Silence():
            await asyncio.Event().wait()
            raise AssertionError("only cancellation ends a silence")


def words(text: str) -> Sequence[str]:
    """Return the text in pieces, each word with the space before it."""
    pieces = text.split(" ")
    return [piece if index == 0 else f" {piece}" for index, piece in enumerate(pieces)] if text else []


def _parts(step: ScriptedReply) -> tuple[Part, ...]:
    thinking = (Thinking(step.thinking, "scripted", "scripted"),) if step.thinking else ()
    text = (Text(step.text),) if step.text else ()
    return (*thinking, *text, *step.calls)
