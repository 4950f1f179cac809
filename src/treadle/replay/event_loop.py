"""Where a run is played again: an event loop without I/O and without time. Whenever nobody can go on by themselves,
the prompter is asked what happens next."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

Prompter = Callable[[], None]


class Stage(asyncio.BaseEventLoop):
    """Runs what is ready, in order. `on_idle` must make something ready, or it is called for ever."""

    def __init__(self, on_idle: Prompter) -> None:
        super().__init__()
        self._selector = _Prompt(on_idle)
        self._clock_resolution = 1e-9
        self._lead: asyncio.Task[None] | None = None

    def time(self) -> float:
        return 0.0

    def play(self, work: Coroutine[Any, Any, None]) -> None:
        """See the work to its end, and whatever it has begun."""
        self._lead = self.create_task(work)
        try:
            self.run_until_complete(self._lead)
        finally:
            self._end_all()

    def leave(self) -> None:
        """Break the work off."""
        if self._lead is not None:
            self._lead.cancel()

    def _end_all(self) -> None:
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


class _Prompt:
    """Stands where a loop waits for I/O."""

    def __init__(self, on_idle: Prompter) -> None:
        self._on_idle = on_idle

    def select(self, timeout: float | None) -> list[Any]:
        if timeout is None or timeout > 0:  # nobody is ready
            self._on_idle()
        return []
