"""Notices a coroutine that blocks the event loop: nothing else in its process continues meanwhile."""

import logging
import time
from collections.abc import Awaitable, Callable, Generator
from functools import partial
from typing import Any, Generic, TypeVar

from treadle.domain.tools import ToolSpec
from treadle.ports.tool import ToolContext

logger = logging.getLogger(__name__)

Result = TypeVar("Result")
BLOCKED_SECONDS = 1.0
"""A step of a coroutine that takes longer is reported."""


def time_steps(work: Awaitable[Result], spec: ToolSpec, context: ToolContext) -> "TimedSteps[Result]":
    """Return the work of a tool call, which logs a warning when it blocks the event loop."""
    return TimedSteps(work, partial(_warn, spec.name, context.run_id))


def _warn(tool: str, run_id: str, seconds: float) -> None:
    logger.warning(
        "The tool `%s` of %s blocked the event loop for %.1f s: no other run of this process continued meanwhile. "
        "Define it with `def`, so that it runs in a thread, or await what it waits for.",
        tool,
        run_id,
        seconds,
    )


class TimedSteps(Generic[Result]):
    """Awaits a coroutine, and reports the seconds of each of its steps that blocks the event loop."""

    def __init__(self, work: Awaitable[Result], report: Callable[[float], None]) -> None:
        self._work = work
        self._report = report

    def __await__(self) -> Generator[Any, Any, Result]:
        steps = self._work.__await__()
        value: Any = None
        error: BaseException | None = None
        while True:
            began = time.perf_counter()
            try:
                awaited = steps.send(value) if error is None else steps.throw(error)
            except StopIteration as end:
                return end.value
            finally:
                if (seconds := time.perf_counter() - began) >= BLOCKED_SECONDS:
                    self._report(seconds)
            value, error = None, None
            try:
                value = yield awaited
            except BaseException as raised:  # a cancellation too: the coroutine decides what it does about it
                error = raised
