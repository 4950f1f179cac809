"""Lends the terminal to another program, such as the user's editor."""

import asyncio
import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import FrameType
from typing import Any, TypeVar

from textual.app import App

from treadle.surfaces.tui.key_queue import KeyQueue

Result = TypeVar("Result")


async def lend_terminal(app: App[Any], keys: KeyQueue, work: Callable[[], Result]) -> Result:
    """Do work that needs the terminal, in a thread, and return its result.

    Runs continue meanwhile. The UI draws nothing, and keys that it has already read wait until it has the terminal
    again, also if the work fails."""
    with keys.paused(), app.batch_update(), _without_interrupts():
        failure: Exception | None = None
        result: list[Result] = []
        with app.suspend():  # which does not resume after an exception
            try:
                result.append(await asyncio.to_thread(work))
            except Exception as error:  # raised below, once the UI has the terminal again
                failure = error
    app.refresh(layout=True)
    if failure is not None:
        raise failure
    return result[0]


def _do_nothing(_number: int, _frame: FrameType | None) -> None:
    pass


@contextmanager
def _without_interrupts() -> Generator[None]:
    """Leave Ctrl-C to the program that has the terminal. It is not ignored: the program would inherit that."""
    before = signal.signal(signal.SIGINT, _do_nothing)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
