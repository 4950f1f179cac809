"""Stopping work from outside, in its own task: what `asyncio.timeout` does, for other reasons too, and cheaper."""

import asyncio


class Interruption:
    """Cancels the task that it was made in, once, when asked to or after some seconds, in a way that this task can
    tell from being cancelled by others. Whoever makes one must say when it is `over`."""

    __slots__ = ("_interrupted", "_task", "_timer")

    def __init__(self, seconds: float | None = None) -> None:
        self._task = asyncio.current_task()
        self._interrupted = False
        self._timer = None
        if seconds is not None:
            self._timer = asyncio.get_running_loop().call_later(max(0.0, seconds), self.interrupt)

    def interrupt(self) -> None:
        if not self._interrupted and self._task is not None:
            self._interrupted = True
            self._task.cancel()

    def take_back(self) -> bool:
        """Undo the cancellation. True when there was one and nobody else has cancelled the task."""
        return self._interrupted and self._task is not None and self._task.uncancel() == 0

    def from_within(self) -> bool:
        """Whether a cancellation that was caught is nobody's wish: the work raised it by itself."""
        return self._task is not None and self._task.cancelling() == 0

    def over(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
