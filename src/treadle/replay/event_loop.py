"""The event loop of a replay, without I/O and without time. When no task can continue, it calls a function that
lets the next thing happen."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

OnIdle = Callable[[], None]


class ReplayEventLoop(asyncio.BaseEventLoop):
    """Runs ready tasks in order. `on_idle` must make a task ready or stop the loop."""

    def __init__(self, on_idle: OnIdle) -> None:
        super().__init__()
        self._selector = _IdleSelector(on_idle)
        self._clock_resolution = 1e-9
        self._main: asyncio.Task[None] | None = None

    def time(self) -> float:
        return 0.0

    def run_main(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a coroutine to its end, with all tasks that it starts."""
        self._main = self.create_task(work)
        try:
            self.run_until_complete(self._main)
        finally:
            self._cancel_all()

    def cancel_main(self) -> None:
        """Cancel the coroutine that `run_main` runs."""
        if self._main is not None:
            self._main.cancel()

    def _cancel_all(self) -> None:
        left = asyncio.all_tasks(self)
        for task in left:
            task.cancel()
        if left:
            self.run_until_complete(asyncio.wait(left))

    def close(self) -> None:
        self.run_until_complete(self.shutdown_asyncgens())
        super().close()

    def _process_events(self, event_list: list[Any]) -> None:
        pass

    def _write_to_self(self) -> None:
        pass


class _IdleSelector:
    """Takes the place of the selector, in which a loop would wait for I/O."""

    def __init__(self, on_idle: OnIdle) -> None:
        self._on_idle = on_idle

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None or timeout > 0:  # no task is ready
            self._on_idle()
        return []
