"""Stopping work from outside, in its own task: what `asyncio.timeout` does, for other reasons too, and cheaper."""

import asyncio
from collections.abc import Callable

from treadle.system.timers import Timers


class Interruption:
    """Cancels the task that it was made in, once, when asked to or when no time is left, in a way that this task
    can tell from being cancelled by others. Whoever makes one must say when it is `over`."""

    __slots__ = ("_interrupted", "_taken_back", "_task", "_time_left", "_timers")

    def __init__(self, timers: Timers, time_left: Callable[[], float] | None = None) -> None:
        self._task = asyncio.current_task()
        self._interrupted = self._taken_back = False
        self._timers = timers
        self._time_left = time_left
        if time_left is not None:
            timers.set(self, asyncio.get_running_loop().time() + max(0.0, time_left()))

    def ring(self) -> None:
        """Interrupt, if the time has really come: the clock that counts may lag behind that of the event loop."""
        left = 0.0 if self._time_left is None else self._time_left()
        if left <= 0:
            self.interrupt()
        else:
            self._timers.set(self, asyncio.get_running_loop().time() + left)

    def interrupt(self) -> None:
        if not self._interrupted and self._task is not None:
            self._interrupted = True
            self._task.cancel()

    def take_back(self) -> bool:
        """Undo the cancellation. True when there was one and nobody else has cancelled the task."""
        if not self._interrupted or self._taken_back or self._task is None:
            return False
        self._taken_back = True
        return self._task.uncancel() == 0

    def from_within(self) -> bool:
        """Whether a cancellation that was caught is nobody's wish: the work raised it by itself."""
        return self._task is not None and self._task.cancelling() == 0

    def over(self) -> None:
        """Whatever came of the work, nothing of this is left in the task."""
        self.take_back()
        if self._time_left is not None:
            self._timers.call_off(self)
