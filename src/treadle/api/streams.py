"""Runs that a program reads while they work."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, Generic, NoReturn, Self

import msgspec
from typing_extensions import TypeVar

from treadle.api.result import Output, Result
from treadle.domain.envelope import Event
from treadle.domain.errors import UsageError
from treadle.domain.events import AttemptReset, Continuation, EventData, LlmRequest, LlmResponse, RunEnd, Token
from treadle.domain.ids import RunId
from treadle.domain.messages import Part, Text
from treadle.domain.partial_json import PartialJson

Piece = TypeVar("Piece", default=Any)
COPIES_PER_CHARACTER: Final = 128
"""How many characters, items and keys may be copied for one new character of an answer that is streamed."""
_NOTHING: Final = object()


class RunStream(AsyncIterator[Piece], Generic[Piece, Output]):
    """What a run writes, piece by piece. After the last one, `result` is the result of the run.

    The run starts with the first piece. It continues if its reader stops:

        agent = treadle.Agent("helper", model="provider/model-id")
        async with treadle.Engine("sqlite:///helper.db") as engine:
            async for text in engine.stream_text(agent, "Hello."):
                print(text, end="")
            stream = engine.stream(agent, "Hello again.")
            async for event in stream:
                match event.data:
                    case treadle.ToolCallEnd(name=name):
                        print(name, "has ended")
                    case treadle.ApprovalRequested(approval_id=approval_id):
                        await engine.decide(approval_id, "approve")
            print(stream.result.outcome)
            async for item in engine.stream_items(agent, "Hello again."):
                if isinstance(item, treadle.AnswerItem):
                    print(item.text)
            async for value in engine.stream_output(agent, "Name three looms.", output=list[str]):
                print(value)
    """

    def __init__(
        self,
        start: Callable[[], Awaitable[RunId]],
        read: Callable[[RunId], AsyncGenerator[Piece, None]],
        finish: Callable[[RunId], Awaitable[Result[Output]]],
    ) -> None:
        self._start = start
        self._read = read
        self._finish = finish
        self._run_id: RunId | None = None
        self._result: Result[Output] | None = None
        self._pieces = self._iterate()

    @property
    def run_id(self) -> RunId:
        """The run, once it has started."""
        if self._run_id is None:
            raise UsageError("The run has not started: read the stream first.")
        return self._run_id

    @property
    def result(self) -> Result[Output]:
        """The result, once all pieces have been read."""
        if self._result is None:
            raise UsageError("The run has no result yet: read the stream to its end, or use `Engine.wait`.")
        return self._result

    def __await__(self) -> NoReturn:
        raise TypeError("A stream is read with `async for`. `await engine.run(…)` returns the result alone.")

    def __iter__(self) -> NoReturn:
        raise TypeError(
            "A stream is read with `async for`; without an event loop, use `engine.stream_text_sync(…)`."
        )

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Piece:
        return await anext(self._pieces)

    async def aclose(self) -> None:
        """Stop reading. The run continues."""
        await self._pieces.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    if not TYPE_CHECKING:  # type checkers know what is there

        def __getattr__(self, name):
            from treadle.api.attribute_hints import refuse_name

            refuse_name(self, name)

    async def _iterate(self) -> AsyncGenerator[Piece, None]:
        run_id = self._run_id = await self._start()
        pieces = self._read(run_id)
        try:
            async for piece in pieces:
                yield piece
        finally:
            await pieces.aclose()
        self._result = await self._finish(run_id)


class _ReplyText:
    """Follows what the model writes, reply by reply. Text that was written before the reader came arrives with the
    whole reply."""

    def __init__(self) -> None:
        self._written = 0

    def read(self, data: EventData) -> str:
        """Return the text that an event adds to the reply. A request begins the next one, a reset the same."""
        new = ""
        match data:
            case Token(offset=offset, text=text) if offset <= self._written:
                new = text[self._written - offset :]
            case LlmResponse(parts=parts):
                new = _join_text(parts)[self._written :]
            case LlmRequest() | AttemptReset():
                self._written = 0
            case _:
                pass
        self._written += len(new)
        return new


def _join_text(parts: Iterable[Part]) -> str:
    return "".join([part.text for part in parts if isinstance(part, Text)])


async def read_text(events: AsyncGenerator[Event, None]) -> AsyncGenerator[str, None]:
    """Yield what the model writes. An empty line separates its replies, and a reply that it begins again.

    Text that was written before the reader came follows with the whole reply."""
    is_separate = has_written = False
    reply = _ReplyText()
    try:
        async for event in events:
            if isinstance(event.data, LlmRequest | AttemptReset):
                is_separate = has_written
            if new := reply.read(event.data):
                yield f"\n\n{new}" if is_separate else new
                is_separate, has_written = False, True
    finally:
        await events.aclose()


async def read_output(events: AsyncGenerator[Event, None]) -> AsyncGenerator[Any, None]:
    """Yield the answer of a run as a JSON value that grows, each one different from the one before. The last one is
    the whole answer.

    The cost grows with the length of the answer only: the longer an answer is, the more text comes between two of
    its values."""
    answer = _GrowingAnswer()
    try:
        async for event in events:
            if answer.read(event.data):
                yield answer.value
    finally:
        await events.aclose()


class _GrowingAnswer:
    """The answer that the model is writing. A reply after a tool call or a refused answer begins a new one; a reply
    that continues one that was cut does not."""

    def __init__(self) -> None:
        self.value: Any = _NOTHING
        """The latest value."""
        self._reply = _ReplyText()
        self._json = PartialJson()
        self._earlier = self._cut = ""
        """The replies that this one continues, and those with this one."""
        self._new_characters = 0

    def read(self, data: EventData) -> bool:
        """Read an event. Return whether there is another value."""
        if isinstance(data, RunEnd):
            return data.outcome == "completed" and self._end(data.text)
        if isinstance(data, LlmRequest | AttemptReset):
            self._begin()
        new = self._reply.read(data)
        if isinstance(data, LlmResponse):
            self._cut = self._earlier + _join_text(data.parts)
            self._earlier = ""
        elif isinstance(data, Continuation):
            self._earlier = self._cut
        self._json.feed(new)
        self._new_characters += len(new)
        return bool(new) and self._is_due and self._show_part()

    def _begin(self) -> None:
        self._json = PartialJson()
        self._json.feed(self._earlier)
        self._new_characters = 0

    @property
    def _is_due(self) -> bool:
        """Whether enough text is new to pay for another value."""
        return self._new_characters * COPIES_PER_CHARACTER >= self._json.cost

    def _show_part(self) -> bool:
        """Show a part of a string, a list or an object: a reply that begins with a number may be plain text."""
        value = self._json.copy()
        return isinstance(value, str | list | dict) and self._update(value)

    def _update(self, value: Any) -> bool:
        self._new_characters = 0
        if self.value is not _NOTHING and value == self.value:
            return False
        self.value = value
        return True

    def _end(self, text: str) -> bool:
        try:
            return self._update(msgspec.json.decode(text))
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            return False  # a session command, or an agent without an output
