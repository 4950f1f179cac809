"""Execution of runs together, and of runs that may kill their workers in trials.

A worker dies with all runs that it executes, so all of them are suspects. After a second death without progress,
half of them execute in a trial, then half of the half that died, until one executes alone: the run that kills its
worker is found. Runs that wait for their trial are not owned, so a death does not count against them."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Protocol

from treadle.core.state import RunState
from treadle.core.suspicion import Suspect, choose_members
from treadle.domain.events import TrialStarted
from treadle.ports.clock import Ids

logger = logging.getLogger(__name__)

TRIAL_SECONDS = 10.0
"""Maximum time until the next trial, and maximum time for which other runs wait for a run that executes alone."""
SHARED_TRIAL_SECONDS = 1.5
"""Maximum time for which other runs wait for a trial with several members if no other worker can execute them: a
death in it convicts none of them."""
STOP_SECONDS = 5.0
"""The share of `TRIAL_SECONDS` that is spent waiting for the other runs to reach the end of a call."""
HOLD_SECONDS = 2.0
"""How long a run that died alone is held back. If a worker dies without it, something else kills workers."""
MAX_HEAD_START_SECONDS = 0.25
"""Maximum time for which a member of a trial executes before the next one starts. Most calls end within it, and the
death of a worker then meets only the members that are still executing."""
ADMISSION_SECONDS, EXCLUSIVE_ADMISSION_SECONDS = 1.0, 5.0
"""Maximum time until the last member of a trial starts: while other runs wait here, and while other workers
execute them."""
GATHER_SECONDS, MAX_GATHER_SECONDS = 0.2, 1.0
"""A trial starts when no suspect was found for this long, or this long after the first."""


class ExecutionSlot(Protocol):
    """A run's permission to execute."""

    @property
    def trial(self) -> TrialStarted | None:
        """The trial that the run is a member of."""
        ...

    def may_continue(self, state: RunState) -> bool:
        """Return whether the run may take its next step; if not, it is released and resumed later."""
        ...

    def needs_trial(self, state: RunState) -> bool:
        """Return whether the run has to execute in a trial instead."""
        ...


class Isolation:
    """The execution slots of one process."""

    def __init__(
        self,
        hold_seconds: float = HOLD_SECONDS,
        gather_seconds: float = GATHER_SECONDS,
        *,
        has_other_workers: bool = False,
    ) -> None:
        self._hold_seconds, self._gather_seconds = hold_seconds, gather_seconds
        self._has_other_workers = has_other_workers
        """Whether other processes execute the runs that wait here."""
        self._is_open = True
        self._executing = 0
        self._idle = asyncio.Event()
        self._entering: list[asyncio.Future[None]] = []
        """Runs that wait until the trial lets other runs execute."""
        self._waiting: dict[asyncio.Future[_Trial], Suspect] = {}
        self._has_suspects = asyncio.Event()
        self._current: _Trial | None = None
        self._trials: asyncio.Task[None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether runs may execute together with others."""
        return self._is_open

    def lets_members_continue(self, trial: "_Trial") -> bool:
        """Return whether members that have made progress continue while their trial lasts."""
        return self._current is trial and not self._has_other_workers

    @asynccontextmanager
    async def share(self) -> AsyncGenerator[ExecutionSlot, None]:
        """Execute together with others, as soon as no trial prevents that."""
        await self._enter()
        try:
            yield _SharedSlot(self)
        finally:
            self._leave()

    @asynccontextmanager
    async def join_trial(self, suspect: Suspect, ids: Ids) -> AsyncGenerator[ExecutionSlot, None]:
        """Execute as a member of a trial, as soon as it is the suspect's turn."""
        if suspect.deaths_alone:
            await asyncio.sleep(self._hold_seconds)
        trial = await self._wait_for_trial(suspect)
        self._executing += 1
        try:
            yield _MemberSlot(self, suspect, trial, trial.start(ids))
        finally:
            trial.remove(suspect)
            self._leave()

    # ── Other runs ──

    async def _enter(self) -> None:
        if self._is_open:
            self._executing += 1
            return
        turn: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._entering.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():  # it was given just before
                self._leave()
            raise

    def _leave(self) -> None:
        self._executing -= 1
        self._idle.set()

    def _open(self) -> None:
        """Let all other runs execute. Those that wait are admitted before the next trial can start."""
        self._is_open = True
        entering, self._entering = self._entering, []
        for turn in entering:
            if not turn.done():
                self._executing += 1
                turn.set_result(None)

    # ── Trials ──

    async def _wait_for_trial(self, suspect: Suspect) -> "_Trial":
        turn: asyncio.Future[_Trial] = asyncio.get_running_loop().create_future()
        self._waiting[turn] = suspect
        self._has_suspects.set()
        if self._trials is None or self._trials.done():
            self._trials = asyncio.create_task(self._hold_trials(), name="treadle-trials")
        try:
            return await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                turn.result().remove(suspect)
            raise
        finally:
            self._waiting.pop(turn, None)

    async def _hold_trials(self) -> None:
        """Hold trials until no suspect waits for one."""
        await self._gather_suspects()
        has_passed = False
        while self._waiting:
            chosen = choose_members(tuple(self._waiting.values()), has_passed)
            await self._hold_trial(_Trial(chosen))
            has_passed = True

    async def _gather_suspects(self) -> None:
        loop = asyncio.get_running_loop()
        until = loop.time() + MAX_GATHER_SECONDS
        while self._has_suspects.is_set() and loop.time() < until:
            self._has_suspects.clear()
            await asyncio.sleep(self._gather_seconds)

    async def _hold_trial(self, trial: "_Trial") -> None:
        """Let the members execute until each has made progress or has stopped, or until the time is up."""
        logger.warning(
            "%d runs were executing when workers died and have made no progress since; they execute in a trial",
            len(trial.suspects),
        )
        is_exclusive = len(trial.suspects) == 1 or self._has_other_workers
        self._current, self._is_open = trial, False
        reopening = asyncio.get_running_loop().call_later(
            TRIAL_SECONDS if is_exclusive else SHARED_TRIAL_SECONDS, self._open
        )
        try:
            if is_exclusive:
                await self._wait_until_idle()
            await self._admit(trial, EXCLUSIVE_ADMISSION_SECONDS if is_exclusive else ADMISSION_SECONDS)
            async with asyncio.timeout(TRIAL_SECONDS):
                await trial.ended.wait()
        except TimeoutError:
            logger.warning("%d runs of the trial have made no progress yet", len(trial.suspects))
        finally:
            reopening.cancel()
            self._open()

    async def _admit(self, trial: "_Trial", seconds: float) -> None:
        """Let the members execute. Each one starts when the one before it has made progress or has had its head
        start, so that one that kills its worker meets few others."""
        members = set(trial.suspects)
        head_start = min(MAX_HEAD_START_SECONDS, seconds / max(1, len(members)))
        for turn, suspect in tuple(self._waiting.items()):
            if suspect in members and not turn.done():
                members.discard(suspect)
                del self._waiting[turn]
                turn.set_result(trial)
                await trial.wait_for(suspect, head_start)
        for suspect in members:  # no longer waiting
            trial.remove(suspect)

    async def _wait_until_idle(self) -> None:
        try:
            async with asyncio.timeout(STOP_SECONDS):
                while self._executing:
                    self._idle.clear()
                    await self._idle.wait()
        except TimeoutError:
            logger.warning("%d other runs are still executing", self._executing)


class _Trial:
    """Suspects that execute together."""

    def __init__(self, suspects: Sequence[Suspect]) -> None:
        self.suspects = set(suspects)
        """Members that have made no progress yet."""
        self.ended = asyncio.Event()
        self._changed = asyncio.Event()
        self._size, self._started = len(suspects), None

    def start(self, ids: Ids) -> TrialStarted:
        self._started = self._started or TrialStarted(ids("trl"), self._size)
        return self._started

    def remove(self, suspect: Suspect) -> None:
        """Remove a member that has made progress or stopped."""
        self.suspects.discard(suspect)
        self._changed.set()
        if not self.suspects:
            self.ended.set()

    async def wait_for(self, member: Suspect, seconds: float) -> None:
        """Wait until a member has made progress or stopped, or until the time is up."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while member in self.suspects:
                    self._changed.clear()
                    await self._changed.wait()


class _SharedSlot:
    trial: TrialStarted | None = None

    def __init__(self, isolation: Isolation) -> None:
        self._isolation = isolation

    def may_continue(self, state: RunState) -> bool:
        return self._isolation.is_open and not state.guards.suspicion.is_suspect

    def needs_trial(self, state: RunState) -> bool:
        return state.guards.suspicion.is_suspect


class _MemberSlot:
    """The slot of a member of a trial. After its own progress, the run continues; if other workers can execute it,
    there, so that a later death in the trial does not meet it."""

    def __init__(self, isolation: Isolation, member: Suspect, trial: _Trial, started: TrialStarted) -> None:
        self._isolation, self._member, self._trial, self.trial = isolation, member, trial, started

    def may_continue(self, state: RunState) -> bool:
        if state.guards.suspicion.is_suspect or state.guards.suspicion.is_culprit:
            return True
        self._trial.remove(self._member)
        return self._isolation.is_open or self._isolation.lets_members_continue(self._trial)

    def needs_trial(self, state: RunState) -> bool:
        return False


class NoIsolation:
    """Execution slots for a replayed run, with which no worker can die. Replaces `Isolation`."""

    @asynccontextmanager
    async def share(self) -> AsyncGenerator[ExecutionSlot, None]:
        yield _UnlimitedSlot()

    @asynccontextmanager
    async def join_trial(self, suspect: Suspect, ids: Ids) -> AsyncGenerator[ExecutionSlot, None]:
        yield _UnlimitedSlot()


class _UnlimitedSlot:
    trial: TrialStarted | None = None

    def may_continue(self, state: RunState) -> bool:
        return True

    def needs_trial(self, state: RunState) -> bool:
        return False
