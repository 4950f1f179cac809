"""Blocking work that may never end, in a thread that does not keep the process alive."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from threading import Thread
from typing import Any, TypeVar

Result = TypeVar("Result")


async def run_in_daemon_thread(work: Callable[[], Result]) -> Result:
    """Return what `work` returns, or raise what it raises.

    The default executor of asyncio is joined when the process exits, so a name lookup or a keyring that hangs would
    hold up the command after its timeout has passed. This thread is abandoned instead."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[Result] = loop.create_future()

    def settle(set_outcome: Callable[[Any], None], outcome: object) -> None:
        if not future.done():
            set_outcome(outcome)

    def run() -> None:
        try:
            outcome = (future.set_result, work())
        except BaseException as error:
            outcome = (future.set_exception, error)
        with suppress(RuntimeError):  # the loop is closed: the caller has stopped waiting
            loop.call_soon_threadsafe(settle, *outcome)

    Thread(target=run, name="treadle-probe", daemon=True).start()
    return await future
