"""Interruption of work in its own task: like `asyncio.timeout`, for other reasons too, and cheaper."""

import asyncio
from collections.abc import Callable

from treadle.system.timers import Timers


class Interruption:
    """Cancels the task that created it, at most once, on request or when its time is up.

    The task can tell this from a cancellation by others. The creator must call `close`."""

    __slots__ = ("_interrupted", "_task", "_time_left", "_timers", "_undone")

    def __init__(self, timers: Timers, time_left: Callable[[], float] | None = None) -> None:
        self._task = asyncio.current_task()
        self._interrupted = self._undone = False
        self._timers = timers
        self._time_left = time_left
        if time_left is not None:
            timers.set(self, asyncio.get_running_loop().time() + max(0.0, time_left()))

    def fire(self) -> None:
        """Interrupt if the time is up. The clock that counts may lag behind that of the event loop."""
        left = 0.0 if self._time_left is None else self._time_left()
        if left <= 0:
            self.interrupt()
        else:
            self._timers.set(self, asyncio.get_running_loop().time() + left)

    def interrupt(self) -> None:
        if not self._interrupted and self._task is not None:
            self._interrupted = True
            self._task.cancel()

    def undo(self) -> bool:
        """Undo the cancellation. Return True if there was one and the task was not cancelled by others too."""
        if not self._interrupted or self._undone or self._task is None:
            return False
        self._undone = True
        return self._task.uncancel() == 0

    def is_internal(self) -> bool:
        """Return whether a cancellation that was caught came from the work itself and not from outside."""
        return self._task is not None and self._task.cancelling() == 0

    def close(self) -> None:
        """Leave nothing of this in the task, however the work ended."""
        self.undo()
        if self._time_left is not None:
            self._timers.cancel(self)
