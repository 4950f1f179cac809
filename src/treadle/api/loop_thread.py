"""An event loop in a thread of its own, for programs without one."""

import asyncio
import atexit
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from contextlib import aclosing
from queue import Queue
from typing import Any, Protocol, TypeVar

_T = TypeVar("_T")
_T_co = TypeVar("_T_co", covariant=True)


class ClosableIterator(Protocol[_T_co]):
    """What an asynchronous generator and a stream have in common."""

    def __aiter__(self) -> AsyncIterator[_T_co]: ...

    def aclose(self) -> Awaitable[None]: ...


AHEAD = 1000
"""How many values an iteration may be ahead of its reader."""


def call_at_exit(function: Callable[[], object]) -> None:
    """Call a function when the main thread has ended. The functions of `atexit` are called only after all pools of
    threads have stopped, which an event loop needs to close what it has opened."""
    register = getattr(threading, "_register_atexit", atexit.register)
    register(function)


class LoopThread:
    """Runs coroutines until it is closed."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    def do(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Return what a coroutine returns. If the caller is interrupted meanwhile, the work is cancelled."""
        doing = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return doing.result()
        except BaseException:
            doing.cancel()
            raise

    def call(self, function: Callable[[], object]) -> None:
        """Call a function in the loop soon."""
        self._loop.call_soon_threadsafe(function)

    def iterate(self, values: ClosableIterator[_T]) -> Iterator[_T]:
        """Yield what an asynchronous generator yields. A reader that stops early closes it."""
        queue: Queue[tuple[_T] | BaseException | None] = Queue(AHEAD)

        async def put(value: tuple[_T] | BaseException | None) -> None:
            if queue.full():
                await asyncio.to_thread(queue.put, value)
            else:
                queue.put_nowait(value)

        async def pump() -> None:
            try:
                async with aclosing(values):
                    async for value in values:
                        await put((value,))
                await put(None)
            except asyncio.CancelledError:
                raise
            except BaseException as error:
                await put(error)

        pumping = asyncio.run_coroutine_threadsafe(pump(), self._loop)
        try:
            while (found := queue.get()) is not None:
                if isinstance(found, BaseException):
                    raise found
                yield found[0]
        finally:
            pumping.cancel()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()
