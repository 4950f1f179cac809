"""Execution of runs together, and of a run that may kill its workers alone.

A worker dies with all runs that it executes, so all of them are suspects. After a second death without progress
each of them executes alone until it makes progress: the run that kills its worker is found, and takes no other run
down with it. Runs that wait for their turn are not owned, so a death does not count against them."""

import asyncio
import heapq
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from itertools import count
from typing import Protocol

from treadle.core.state import RunState
from treadle.domain.ids import RunId

logger = logging.getLogger(__name__)

ISOLATION_SECONDS = 10.0
"""Maximum time for which the other runs of a process wait for one suspect."""
STOP_SECONDS = 5.0
"""The share of `ISOLATION_SECONDS` that is spent waiting for the other runs to reach the end of a call."""
HOLD_SECONDS = 2.0
"""How long a run that died alone is held back. If a worker dies without it, something else kills workers."""


class ExecutionSlot(Protocol):
    """A run's permission to execute."""

    def may_continue(self, state: RunState) -> bool:
        """Return whether the run may take its next step; if not, it is released and resumed later."""
        ...

    def must_run_alone(self, state: RunState) -> bool:
        """Return whether the run has to execute alone instead."""
        ...


class Isolation:
    """The execution slots of one process."""

    def __init__(self, hold_seconds: float = HOLD_SECONDS) -> None:
        self._hold_seconds = hold_seconds
        self._open = asyncio.Event()
        self._open.set()
        self._idle = asyncio.Event()
        self._executing = 0
        self._queue: list[tuple[int, int, asyncio.Future[None]]] = []
        """Suspects that wait for their turn, those with the fewest deaths first."""
        self._numbers = count()
        self._taken = False

    @asynccontextmanager
    async def share(self) -> AsyncGenerator[ExecutionSlot, None]:
        """Execute together with others, as soon as no suspect executes alone."""
        while not self._open.is_set():
            await self._open.wait()
        self._executing += 1
        try:
            yield _SharedSlot(self._open)
        finally:
            self._executing -= 1
            if self._executing == 0:
                self._idle.set()

    @asynccontextmanager
    async def isolate(self, run_id: RunId, deaths: int) -> AsyncGenerator[ExecutionSlot, None]:
        """Execute while no other run does. After `ISOLATION_SECONDS` the others continue as well."""
        logger.warning(
            "run %s was executing when workers died and has made no progress since; it executes alone", run_id
        )
        if deaths:
            await asyncio.sleep(self._hold_seconds)
        await self._wait_for_turn(deaths)
        loop = asyncio.get_running_loop()
        self._open.clear()
        reopening = loop.call_later(ISOLATION_SECONDS, self._open.set)
        try:
            await self._wait_until_idle()
            yield _ExclusiveSlot()
        finally:
            reopening.cancel()
            self._end_turn()

    async def _wait_for_turn(self, deaths: int) -> None:
        if not self._taken:
            self._taken = True
            return
        turn = asyncio.get_running_loop().create_future()
        heapq.heappush(self._queue, (deaths, next(self._numbers), turn))
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was given just before
                self._end_turn()
            raise

    async def _wait_until_idle(self) -> None:
        if self._executing:
            self._idle.clear()
            try:
                async with asyncio.timeout(STOP_SECONDS):
                    await self._idle.wait()
            except TimeoutError:
                logger.warning("%d other runs are still executing", self._executing)

    def _end_turn(self) -> None:
        """Give the turn to the next suspect, or let all other runs continue."""
        while self._queue:
            _, _, turn = heapq.heappop(self._queue)
            if not turn.done():
                turn.set_result(None)
                return
        self._taken = False
        self._open.set()


class _SharedSlot:
    def __init__(self, is_open: asyncio.Event) -> None:
        self._open = is_open

    def may_continue(self, state: RunState) -> bool:
        return self._open.is_set() and not state.guards.suspicion.is_suspect

    def must_run_alone(self, state: RunState) -> bool:
        return state.guards.suspicion.is_suspect


class _ExclusiveSlot:
    def may_continue(self, state: RunState) -> bool:
        return state.guards.suspicion.is_suspect or state.guards.suspicion.is_culprit

    def must_run_alone(self, state: RunState) -> bool:
        return False


class NoIsolation:
    """Execution slots for a replayed run, with which no worker can die. Replaces `Isolation`."""

    @asynccontextmanager
    async def share(self) -> AsyncGenerator[ExecutionSlot, None]:
        yield _UnlimitedSlot()

    @asynccontextmanager
    async def isolate(self, run_id: RunId, deaths: int) -> AsyncGenerator[ExecutionSlot, None]:
        yield _UnlimitedSlot()


class _UnlimitedSlot:
    def may_continue(self, state: RunState) -> bool:
        return True

    def must_run_alone(self, state: RunState) -> bool:
        return False
