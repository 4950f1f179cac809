"""Runs that a program reads while they work."""

from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable
from typing import Any, Generic, NoReturn, Self

from typing_extensions import TypeVar

from treadle.api.result import Output, Result
from treadle.domain.envelope import Event
from treadle.domain.errors import UsageError
from treadle.domain.events import AttemptReset, LlmRequest, LlmResponse, Token
from treadle.domain.ids import RunId
from treadle.domain.messages import Text

Piece = TypeVar("Piece", default=Any)


class RunStream(AsyncIterator[Piece], Generic[Piece, Output]):
    """What a run writes, piece by piece. After the last one, `result` is the result of the run.

    The run starts with the first piece. It goes on if its reader stops:

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
        """Stop reading. The run goes on."""
        await self._pieces.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def _iterate(self) -> AsyncGenerator[Piece, None]:
        run_id = self._run_id = await self._start()
        pieces = self._read(run_id)
        try:
            async for piece in pieces:
                yield piece
        finally:
            await pieces.aclose()
        self._result = await self._finish(run_id)


async def read_text(events: AsyncGenerator[Event, None]) -> AsyncGenerator[str, None]:
    """Yield what the model writes. An empty line separates its replies, and a reply that it begins again.

    Text that was written before the reader came follows with the whole reply."""
    is_separate = has_written = False
    written = 0
    try:
        async for event in events:
            new = ""
            match event.data:
                case Token(offset=offset, text=text) if offset <= written:
                    new = text[written - offset :]
                case LlmResponse(parts=parts):
                    new = "".join([part.text for part in parts if isinstance(part, Text)])[written:]
                case LlmRequest() | AttemptReset():
                    is_separate, written = has_written, 0
                case _:
                    pass
            if new:
                yield f"\n\n{new}" if is_separate else new
                is_separate, has_written = False, True
                written += len(new)
    finally:
        await events.aclose()
