"""A journal that fails on command: the process dies before or after a write, or stalls past its lease."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Literal, Protocol, TypeVar

from treadle.domain.envelope import Draft, Event, Origin
from treadle.domain.ids import RunId
from treadle.domain.messages import Message
from treadle.ports.journal import ANY, Advance, Advanced, Claim, Journal, Wakes

Operation = Literal["submit", "claim", "advance", "deliver", "read", "renew", "runnable"]
Fault = Literal["before", "after"]
"""Die before the write happens, or after it has happened and before the caller learns of it."""

Plan = Callable[[Operation], Fault | None]
Delay = Callable[[], float]
Result = TypeVar("Result")


class Crashed(asyncio.CancelledError):
    """The process that made this call is dead. It is a cancellation, so that no code handles it."""


class JournalAndWakes(Journal, Wakes, Protocol):
    """The journal and the wakes of a process."""


class FaultyJournal:
    """The journal as seen by one simulated process. Implements `Journal` and `Wakes`. When the plan names a fault,
    the process dies: `on_crash` is called, and this call and every later one raise Crashed. `delay` returns the
    seconds that each call takes, before and after."""

    def __init__(self, journal: JournalAndWakes, plan: Plan, on_crash: Callable[[], None], delay: Delay) -> None:
        self._journal = journal
        self._plan = plan
        self._on_crash = on_crash
        self._delay = delay
        self._stalled_until = 0.0
        self.dead = False

    def stall(self, seconds: float) -> None:
        """Block every call for this many seconds."""
        self._stalled_until = asyncio.get_running_loop().time() + seconds

    def die(self) -> None:
        if not self.dead:
            self.dead = True
            self._on_crash()

    async def submit(self, origin: Origin, events: Sequence[Draft], key: str | None = None) -> RunId:
        return await self._do("submit", lambda: self._journal.submit(origin, events, key))

    async def claim(self, run_id: RunId, worker: str) -> Claim:
        return await self._do("claim", lambda: self._journal.claim(run_id, worker))

    async def advance(self, advance: Advance) -> Advanced:
        return await self._do("advance", lambda: self._journal.advance(advance))

    async def deliver(self, run_id: RunId, event: Draft, key: str, seen: int = ANY) -> int | None:
        return await self._do("deliver", lambda: self._journal.deliver(run_id, event, key, seen))

    async def history(self, run_id: RunId) -> Sequence[Message]:
        return await self._do("read", lambda: self._journal.history(run_id))

    async def read(self, run_id: RunId, after: int = 0, limit: int = 1000) -> Sequence[Event]:
        return await self._do("read", lambda: self._journal.read(run_id, after, limit))

    async def renew(self, worker: str) -> Sequence[RunId]:
        return await self._do("renew", lambda: self._journal.renew(worker))

    async def runnable(self, limit: int = 100) -> Sequence[RunId]:
        return await self._do("runnable", lambda: self._journal.runnable(limit))

    async def _do(self, operation: Operation, call: Callable[[], Awaitable[Result]]) -> Result:
        await self._wait()
        fault = self._plan(operation)
        if fault == "before":
            self.die()
        self._check_alive()
        result = await call()
        if fault == "after":
            self.die()
        await self._wait()
        return result

    async def _wait(self) -> None:
        self._check_alive()
        stalled = self._stalled_until - asyncio.get_running_loop().time()
        await asyncio.sleep(max(stalled, self._delay()))
        self._check_alive()

    def _check_alive(self) -> None:
        if self.dead:
            raise Crashed("the simulated process is dead")
