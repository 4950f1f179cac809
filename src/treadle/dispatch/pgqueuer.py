"""The dispatcher of many workers on PostgreSQL: jobs of PgQueuer, in front of the dispatcher of one process.

A job says: look at this run. It is written by the commit that makes the run runnable, taken by a worker that has
room, and done as soon as that worker has heard of it: it does not last as long as the work. Who works on a run is
said by its lease; a job that lasted would be a second one, to be kept alive for every run, handed out again when
a heartbeat is late, and in the way of the next job for the same run. What the queue loses, or hands out twice,
costs a look: the sweep finds what is runnable and nobody's, also where somebody has emptied the queue."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

from pgqueuer import AsyncpgDriver, Job, Queries, QueueManager, RetryRequested
from pgqueuer.adapters.persistence.qb import QueryBuilderEnvironment, QueryQueueBuilder, QuerySchedulerBuilder
from pgqueuer.domain.settings import DBSettings
from pgqueuer.domain.types import Channel, QueueEntrypoint, QueueManagerId
from pgqueuer.ports.repository import EntrypointExecutionParameter

from treadle.dispatch.local import LocalDispatcher
from treadle.domain.ids import Instant, RunId
from treadle.ports.clock import Clock
from treadle.ports.dispatcher import Work
from treadle.ports.journal import LEASE_SECONDS, Wakes
from treadle.ports.queue import JOB, NAMES

logger = logging.getLogger(__name__)

BATCH_JOBS = 20
"""Jobs that are taken at a time, at most."""
HEARTBEAT = timedelta(seconds=LEASE_SECONDS)
"""When a job that was taken and not done is another worker's."""
POLL = timedelta(seconds=10)
"""How long nobody looks for jobs while nobody is told of any."""
LOG_CLEANUP_SECONDS = 60.0
FIRST_PAUSE, LONGEST_PAUSE = 0.1, 5.0
ANSWER_SECONDS, CLOSE_SECONDS = 30.0, 2.0
SESSION_SETTINGS = "SET synchronous_commit = off; SET plan_cache_mode = force_generic_plan"
"""A job that comes back after a crash is a look in vain; and to plan how one is taken takes longer than taking."""

Connect = Callable[[], Awaitable[Any]]
"""Opens a connection of asyncpg, with our schema on its search path."""


class _Driver(AsyncpgDriver):
    """Does not wait for ever for a server that has fallen silent."""

    async def fetch(self, query: str, *args: object) -> list[dict[str, object]]:
        async with asyncio.timeout(ANSWER_SECONDS):
            return await super().fetch(query, *args)

    async def execute(self, query: str, *args: object) -> str:
        async with asyncio.timeout(ANSWER_SECONDS):
            return await super().execute(query, *args)

    async def notify(self, channel: str, payload: str) -> None:
        async with asyncio.timeout(ANSWER_SECONDS):
            await super().notify(channel, payload)


class _Jobs(Queries):
    """The jobs in the database. No more are taken than there is room for: the others are for other workers."""

    def __init__(self, driver: AsyncpgDriver, here: LocalDispatcher) -> None:
        names = DBSettings.model_validate(NAMES)
        made = QueryBuilderEnvironment(names), QueryQueueBuilder(names), QuerySchedulerBuilder(names)
        super().__init__(driver, *made)
        self._here = here

    async def dequeue(
        self,
        batch_size: int,
        entrypoints: dict[QueueEntrypoint, EntrypointExecutionParameter],
        queue_manager_id: QueueManagerId,
        global_concurrency_limit: int | None,
        heartbeat_timeout: timedelta,
    ) -> list[Job]:
        await self._here.until_room()
        most = min(batch_size, self._here.room)
        if most == 0:  # nothing is begun here any more
            return []
        rest = (entrypoints, queue_manager_id, global_concurrency_limit, heartbeat_timeout)
        return await super().dequeue(most, *rest)


class PgQueuerDispatcher:
    """Implements `Dispatcher` on PgQueuer. Commits write their jobs themselves, so nobody need `wake` a run here
    for what they commit: it would be looked at twice."""

    def __init__(self, connect: Connect, wakes: Wakes, clock: Clock, worker: str, concurrency: int = 1000) -> None:
        self._connect = connect
        self._clock = clock
        self._here = LocalDispatcher(wakes, clock, worker, concurrency)
        self._manager: QueueManager | None = None
        self._supervising: asyncio.Task[None] | None = None
        self._stopping = False

    async def start(self, work: Work) -> None:
        await self._here.start(work)
        self._supervising = asyncio.create_task(self._supervise(), name="treadle-queue")

    def wake(self, run_id: RunId, at: Instant) -> None:
        """Look at this run here, then."""
        self._here.wake(run_id, at)

    async def stop(self, grace: float = 0.0) -> None:
        self._stopping = True
        if self._manager is not None:
            self._manager.shutdown.set()
        await self._here.stop(grace)
        if self._supervising is not None:
            if self._manager is not None:  # it says which of its jobs are done
                await asyncio.wait({self._supervising}, timeout=CLOSE_SECONDS)
            self._supervising.cancel()
            await asyncio.wait({self._supervising})

    @property
    def busy(self) -> bool:
        """Whether a run is being worked on here or about to be."""
        return self._here.busy

    # ── Jobs ──

    async def _look(self, job: Job) -> None:
        if self._stopping:
            raise RetryRequested(reason="this worker takes nothing more")
        if job.payload is not None:
            self._here.wake(RunId(job.payload.decode()), self._clock.now())

    async def _supervise(self) -> None:
        """Take jobs, whatever happens: PgQueuer gives up when the server goes away. The sweep goes on meanwhile."""
        loop, pause = asyncio.get_running_loop(), FIRST_PAUSE
        while not self._stopping:
            began = loop.time()
            try:
                await self._take_jobs()
            except Exception as error:
                said = f"{type(error).__name__}: {error}"
                logger.warning("The queue cannot be heard (%s); trying again in %.1f s", said, pause)
            if loop.time() - began > LONGEST_PAUSE:
                pause = FIRST_PAUSE
            if not self._stopping:
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE)

    async def _take_jobs(self) -> None:
        connection = await self._connect()
        try:
            await self._take_jobs_over(connection)
        finally:  # before anything is waited for, which whoever is told to stop for good does not do
            self._manager = None
            connection.terminate()

    async def _take_jobs_over(self, connection: Any) -> None:
        driver = _Driver(connection)
        jobs = _Jobs(driver, self._here)
        manager = self._manager = QueueManager(jobs, Channel(NAMES["channel"]))
        manager.entrypoint(JOB)(self._look)

        def leave(_: object = None) -> None:
            manager.shutdown.set()

        connection.add_termination_listener(leave)  # it need not find out by itself
        if self._stopping:
            leave()
        tidying = asyncio.create_task(_clear_log(jobs), name="treadle-queue-log")
        try:
            await driver.execute(SESSION_SETTINGS)
            await manager.run(
                dequeue_timeout=POLL,
                batch_size=BATCH_JOBS,
                shutdown_on_listener_failure=True,
                heartbeat_timeout=HEARTBEAT,
                log_aggregation_interval=timedelta(0),
            )
            if not self._stopping:
                raise ConnectionError("the connection was closed")
        finally:
            tidying.cancel()
            await asyncio.gather(tidying, return_exceptions=True)


async def _clear_log(jobs: Queries) -> None:
    """Forget which jobs there were: what became of a run is in its journal."""
    while True:
        await jobs.clear_queue_log(JOB)
        await asyncio.sleep(LOG_CLEANUP_SECONDS)
