"""Background tasks of a channel, one for each name."""

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

logger = logging.getLogger(__name__)
RETRY_SECONDS = 5.0

Work = Callable[[], Coroutine[Any, Any, None]]


class TaskSet:
    """Owns tasks. A task that fails unexpectedly is logged and started again after a pause."""

    def __init__(self) -> None:
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._again: set[str] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def run(self, name: str, work: Work) -> None:
        """Start work, unless it is in progress."""
        if name not in self._tasks:
            task = asyncio.get_running_loop().create_task(self._repeat(name, work))
            self._tasks[name] = task

    def run_again(self, name: str, work: Work) -> None:
        """Start work, or repeat it once after the current one."""
        self._again.add(name)
        self.run(name, work)

    async def _repeat(self, name: str, work: Work) -> None:
        is_over = False
        try:
            while not is_over:
                self._again.discard(name)
                try:
                    await work()
                except Exception:
                    logger.exception("channel work %s failed; retrying", name)
                    self._again.add(name)
                    await asyncio.sleep(RETRY_SECONDS)
                is_over = name not in self._again
        finally:
            self._tasks.pop(name, None)

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)
