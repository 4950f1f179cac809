"""Functions that yield: each thing they yield is shown as progress. The result is what they return; where they
return nothing, as an async one must, it is the last thing they yielded."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing
from threading import Event
from typing import Any

from treadle.ports.tool import ToolContext


async def run_async_generator(yielding: AsyncGenerator[Any, None], show: Callable[[Any], None]) -> Any:
    last: Any = None
    async with aclosing(yielding):
        async for last in yielding:
            show(last)
    return last


async def run_generator(yielding: Generator[Any, None, Any], show: Callable[[Any], None]) -> Any:
    """Cancelling stops it where it yields next."""
    unwanted = Event()
    try:
        return await asyncio.to_thread(_exhaust, yielding, show, unwanted)
    finally:
        unwanted.set()


def _exhaust(yielding: Generator[Any, None, Any], show: Callable[[Any], None], unwanted: Event) -> Any:
    last: Any = None
    try:
        while not unwanted.is_set():
            last = next(yielding)
            if not unwanted.is_set():
                show(last)
    except StopIteration as end:
        return last if end.value is None else end.value
    yielding.close()
    return None


def make_progress_callback(context: ToolContext, as_text: Callable[[Any], str]) -> Callable[[Any], None]:
    """Show what is yielded as progress."""
    return lambda value: context.progress(as_text(value))
