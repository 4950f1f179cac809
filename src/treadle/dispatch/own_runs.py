"""The dispatcher of a process that leaves runs of others alone."""

from collections.abc import Sequence

from treadle.dispatch.local import LocalDispatcher
from treadle.domain.ids import Instant, RunId
from treadle.ports.clock import Clock
from treadle.ports.dispatcher import Work
from treadle.ports.journal import Wakes

MAX_RUNNABLE_RUNS = 1000
"""Number of runnable runs among which a process looks for its own."""


class OwnRunsDispatcher:
    """Implements `ports.dispatcher.Dispatcher` for a process that executes only the runs it is woken for: those
    that it started or sent something to."""

    def __init__(self, wakes: Wakes, clock: Clock, worker: str, most: int) -> None:
        self._wakes = wakes
        self._own_runs: set[RunId] = set()
        self._local = LocalDispatcher(self, clock, worker, most)

    async def start(self, work: Work) -> None:
        await self._local.start(work)

    def wake(self, run_id: RunId, at: Instant) -> None:
        self._own_runs.add(run_id)
        self._local.wake(run_id, at)

    async def stop(self, grace: float = 0.0) -> None:
        await self._local.stop(grace)

    @property
    def busy(self) -> bool:
        return self._local.busy

    async def runnable(self, limit: int = 100) -> Sequence[RunId]:
        """Return runnable runs for the sweep, without those of other processes."""
        return [run_id for run_id in await self._wakes.runnable(MAX_RUNNABLE_RUNS) if run_id in self._own_runs]

    async def renew(self, worker: str) -> Sequence[RunId]:
        return await self._wakes.renew(worker)
