"""Runs generator functions: each yielded value is shown as progress. The result is the returned value, or, if
there is none, as in an async generator, the last yielded value."""

import asyncio
from collections.abc import AsyncGenerator, Callable, Generator
from contextlib import aclosing
from threading import Event
from typing import Any

from treadle.ports.tool import ToolContext


async def run_async_generator(generator: AsyncGenerator[Any, None], show: Callable[[Any], None]) -> Any:
    last: Any = None
    async with aclosing(generator):
        async for last in generator:
            show(last)
    return last


async def run_generator(generator: Generator[Any, None, Any], show: Callable[[Any], None]) -> Any:
    """Run a generator in a thread. Cancellation stops it at its next yield."""
    stopped = Event()
    try:
        return await asyncio.to_thread(_exhaust, generator, show, stopped)
    finally:
        stopped.set()


def _exhaust(generator: Generator[Any, None, Any], show: Callable[[Any], None], stopped: Event) -> Any:
    last: Any = None
    try:
        while not stopped.is_set():
            last = next(generator)
            if not stopped.is_set():
                show(last)
    except StopIteration as end:
        return last if end.value is None else end.value
    generator.close()
    return None


def make_progress_callback(context: ToolContext, as_text: Callable[[Any], str]) -> Callable[[Any], None]:
    """Return a function that shows a yielded value as progress."""
    return lambda value: context.progress(as_text(value))
