"""Tools that yield: progress is shown as it arrives, and the last value is the result."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator

import pytest

from treadle.domain.ids import RunId, SessionId
from treadle.ports.tool import Observation, Tool, ToolContext
from treadle.tools.function import tool


async def run(made: Tool) -> tuple[str | Observation, list[str]]:
    shown: list[str] = []
    context = ToolContext(RunId("r"), SessionId("s"), "c", "k", shown.append)
    return await made.run(made.parse("{}"), context), shown


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


async def test_yielded_values_are_progress_and_the_last_or_returned_value_is_the_result() -> None:
    assert await run(counts) == ("2", ["1", "2"])
    assert await run(works) == ("whole", ["half"])
    assert await run(works_async) == ("whole", ["half", "whole"])
    assert await run(observes) == (Observation("out", exit_code=3), ["running"])
    assert await run(nothing) == ("", [])


async def test_an_exception_in_a_generator_is_raised() -> None:
    @tool
    def breaks() -> Iterator[str]:
        yield "half"
        raise LookupError("gone")

    with pytest.raises(LookupError, match="gone"):
        await run(breaks)


async def test_a_sync_generator_is_stopped_at_its_next_yield() -> None:
    closed, go_on = threading.Event(), threading.Event()

    @tool
    def endless() -> Iterator[str]:
        try:
            while True:
                yield "still"
                go_on.wait(5)
        finally:
            closed.set()

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
    assert closed.wait(5)


async def test_a_cancelled_async_generator_is_closed() -> None:
    closed: list[bool] = []

    @tool
    async def endless() -> AsyncIterator[str]:
        try:
            while True:
                yield "still"
                await asyncio.sleep(60)
        finally:
            closed.append(True)

    first = asyncio.Event()
    context = ToolContext(RunId("r"), SessionId("s"), "c", "k", lambda text: first.set())
    task = asyncio.ensure_future(endless.run(endless.parse("{}"), context))
    await first.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert closed == [True]
