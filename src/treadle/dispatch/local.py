"""The dispatcher of a single process: a task per run, one timer for due runs, and a sweep for missed wakes."""

import asyncio
import heapq
import logging
from collections.abc import Sequence

from treadle.domain.errors import StoreError
from treadle.domain.ids import Instant, RunId
from treadle.ports.clock import Clock
from treadle.ports.dispatcher import Work
from treadle.ports.journal import RENEW_SECONDS, Wakes

logger = logging.getLogger(__name__)

SWEEP_SECONDS = RENEW_SECONDS
"""How often leases are renewed and missed wakes are looked for."""


class LocalDispatcher:
    """Implements `Dispatcher` on asyncio."""

    def __init__(self, wakes: Wakes, clock: Clock, worker: str, concurrency: int = 1000) -> None:
        self._wakes = wakes
        self._clock = clock
        self._worker = worker
        self._concurrency = concurrency
        self._work: Work | None = None
        self._active: dict[RunId, asyncio.Task[None]] = {}
        self._held: dict[RunId, asyncio.Task[None]] = {}
        """Runs that this worker owned at the last renewal."""
        self._again: set[RunId] = set()
        """Runs that were woken while active. They are worked on once more afterwards."""
        self._ready: dict[RunId, None] = {}
        """Runs that were woken and wait for a free slot, in order."""
        self._timers: list[tuple[Instant, RunId]] = []
        self._alarm: asyncio.TimerHandle | None = None
        self._sweeper: asyncio.Task[None] | None = None
        self._has_room = asyncio.Event()
        self._has_room.set()

    async def start(self, work: Work) -> None:
        self._work = work
        self._sweeper = asyncio.create_task(self._sweep_forever(), name="treadle-sweep")

    def wake(self, run_id: RunId, at: Instant) -> None:
        if at > self._clock.now():
            heapq.heappush(self._timers, (at, run_id))
            self._set_alarm()
        elif run_id in self._active:
            self._again.add(run_id)
        else:
            self._ready[run_id] = None
            self._start_ready_runs()

    async def stop(self, grace: float = 0.0) -> None:
        self._work = None
        self._has_room.set()
        if self._alarm is not None:
            self._alarm.cancel()
        if self._active and grace > 0:  # leases are still renewed while waiting
            await asyncio.wait(self._active.values(), timeout=grace)
        tasks = [*self._active.values(), *([self._sweeper] if self._sweeper else [])]
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    @property
    def busy(self) -> bool:
        """Whether a run is in progress or about to start."""
        return bool(self._active or self._ready)

    @property
    def room(self) -> int:
        """How many more runs can start now."""
        return 0 if self._work is None else max(0, self._concurrency - len(self._active) - len(self._ready))

    async def wait_for_room(self) -> None:
        """Wait until there is room, or until the dispatcher is stopped."""
        while self._work is not None and not self.room:
            self._has_room.clear()
            await self._has_room.wait()

    def _start_ready_runs(self) -> None:
        """Start ready runs while there is room."""
        while self._work is not None and self._ready and len(self._active) < self._concurrency:
            run_id = next(iter(self._ready))
            del self._ready[run_id]
            task = asyncio.create_task(self._run(run_id, self._work), name=f"treadle-{run_id}")
            self._active[run_id] = task

    async def _run(self, run_id: RunId, work: Work) -> None:
        try:
            await work(run_id)
        except StoreError as error:
            logger.error("%s", error)
        except Exception:
            logger.exception("work on %s failed", run_id)
        finally:
            del self._active[run_id]
            if run_id in self._again:
                self._again.discard(run_id)
                self._ready[run_id] = None
            self._start_ready_runs()
            self._has_room.set()

    # ── Time ──

    def _set_alarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        if self._timers and self._work is not None:
            delay = max(0.0, self._timers[0][0] - self._clock.now())
            # A distant timer is checked again by then: the wall clock may jump in the meantime.
            self._alarm = asyncio.get_running_loop().call_later(min(delay, SWEEP_SECONDS), self._wake_due)

    def _wake_due(self) -> None:
        now, self._alarm = self._clock.now(), None
        while self._timers and self._timers[0][0] <= now:
            self.wake(heapq.heappop(self._timers)[1], now)
        self._set_alarm()

    async def _sweep_forever(self) -> None:
        while True:
            try:
                await self._sweep()
            except StoreError as error:
                logger.error("%s", error)
            except Exception:
                logger.exception("a sweep failed; retrying")
            await asyncio.sleep(SWEEP_SECONDS)

    async def _sweep(self) -> None:
        """Renew the leases of this worker's runs, stop those it has lost, and wake runnable runs without an
        owner."""
        if self._active:
            self._drop_lost(await self._wakes.renew(self._worker))
        if self._work is None:
            return
        for run_id in await self._wakes.runnable():
            if run_id not in self._active:
                self.wake(run_id, self._clock.now())

    def _drop_lost(self, owned: Sequence[RunId]) -> None:
        """Stop work on runs that were owned at the last renewal and have been taken over since."""
        for run_id in [run_id for run_id in self._held if run_id not in owned]:
            if self._active.get(run_id) is self._held[run_id]:
                self._held[run_id].cancel()
        self._held = {run_id: self._active[run_id] for run_id in owned if run_id in self._active}
