"""Tools that yield: progress is shown as it arrives, and the last value is the result."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from treadle.domain.ids import RunId, SessionId
from treadle.ports.tool import Observation, Tool, ToolContext
from treadle.tools.function import tool


def run(made: Tool) -> tuple[str | Observation, list[str]]:
    shown: list[str] = []
    context = ToolContext(RunId("r"), SessionId("s"), "c", "k", shown.append)
    return asyncio.run(made.run(made.parse("{}"), context)), shown


@tool
def counts() -> Iterator[int]:
    """Yield and do not return."""
    yield 1
    yield 2


@tool
def works() -> Iterator[str]:
    """Yield, and return the result."""
    yield "half"
    return "whole"


@tool
async def works_async() -> AsyncIterator[str]:
    yield "half"
    yield "whole"


@tool
def observes() -> Iterator[str]:
    yield "running"
    return Observation("out", exit_code=3)


@tool
def nothing() -> Iterator[str]:
    yield from ()


def test_yielded_values_are_progress_and_the_last_or_returned_value_is_the_result() -> None:
    assert run(counts) == ("2", ["1", "2"])
    assert run(works) == ("whole", ["half"])
    assert run(works_async) == ("whole", ["half", "whole"])
    assert run(observes) == (Observation("out", exit_code=3), ["running"])
    assert run(nothing) == ("", [])


def test_an_exception_in_a_generator_is_raised() -> None:
    @tool
    def breaks() -> Iterator[str]:
        yield "half"
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        run(breaks)


def test_a_sync_generator_is_stopped_at_its_next_yield() -> None:
    closed, go_on = threading.Event(), threading.Event()

    @tool
    def endless() -> Iterator[str]:
        try:
            while True:
                yield "still"
                go_on.wait(5)
        finally:
            closed.set()

    async def scenario() -> None:
        first = asyncio.Event()
        loop = asyncio.get_running_loop()

        def show(_: str) -> None:
            loop.call_soon_threadsafe(first.set)

        task = asyncio.ensure_future(
            endless.run(endless.parse("{}"), ToolContext(RunId("r"), SessionId("s"), "c", "k", show))
        )
        await first.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        go_on.set()

    asyncio.run(scenario())
    assert closed.wait(5)


def test_a_cancelled_async_generator_is_closed() -> None:
    closed: list[bool] = []

    @tool
    async def endless() -> AsyncIterator[str]:
        try:
            while True:
                yield "still"
                await asyncio.sleep(60)
        finally:
            closed.append(True)

    async def scenario() -> None:
        first = asyncio.Event()
        context = ToolContext(RunId("r"), SessionId("s"), "c", "k", lambda text: first.set())
        task = asyncio.ensure_future(endless.run(endless.parse("{}"), context))
        await first.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(scenario())
    assert closed == [True]
