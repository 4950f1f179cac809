"""The dispatcher of many workers on PostgreSQL: PgQueuer jobs in front of the dispatcher of a single process.

A job means: work on this run. The commit that makes a run runnable writes it, a worker with room takes it, and it
is done as soon as that worker has been notified. It does not last as long as the work. The lease says who works on
a run. A job that lasted would be a second lease: it would need heartbeats for every run, would be handed out again
when a heartbeat is late, and would block the next job for the same run. A job that is lost or handed out twice
costs one extra check, because the sweep finds runnable runs without an owner, even if the queue was emptied."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta
from typing import Any

from pgqueuer import AsyncpgDriver, Job, Queries, QueueManager, RetryRequested
from pgqueuer.adapters.persistence.qb import QueryBuilderEnvironment, QueryQueueBuilder, QuerySchedulerBuilder
from pgqueuer.domain.settings import DBSettings
from pgqueuer.domain.types import Channel, QueueEntrypoint, QueueManagerId
from pgqueuer.ports.repository import EntrypointExecutionParameter

from treadle.dispatch.local import LocalDispatcher
from treadle.domain.ids import Instant, RunId
from treadle.domain.version import VERSION
from treadle.ports.clock import Clock
from treadle.ports.dispatcher import Work
from treadle.ports.journal import LEASE_SECONDS, Wakes
from treadle.ports.queue import JOB, NAMES

logger = logging.getLogger(__name__)

BATCH_JOBS = 20
"""The most jobs that are taken at a time."""
HEARTBEAT = timedelta(seconds=LEASE_SECONDS)
"""When a job that was taken and not finished goes to another worker."""
POLL = timedelta(seconds=10)
"""How long to wait before polling for jobs without a notification."""
LOG_CLEANUP_SECONDS = 60.0
FIRST_PAUSE_SECONDS, LONGEST_PAUSE_SECONDS = 0.1, 5.0
ANSWER_SECONDS, CLOSE_SECONDS = 30.0, 2.0
SESSION_SETTINGS = "SET synchronous_commit = off; SET plan_cache_mode = force_generic_plan"
"""A job that reappears after a crash only causes an extra check, and planning the dequeue query takes longer than
running it."""

Connect = Callable[[Mapping[str, str]], Awaitable[Any]]
"""Opens an asyncpg connection with Treadle's schema on its search path, and with additional settings."""


class _Driver(AsyncpgDriver):
    """Times out if the server stops responding."""

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
    """The jobs in the database. Takes no more than there is room for, and leaves the rest for other workers.

    PgQueuer has no setting for this: a full worker would take whole batches and hold them. The override is for
    correctness and saves no time. `tests/test_library_internals.py` fails when an upgrade no longer calls it.

    A job wakes its run as soon as it is taken, so that it needs room before the next batch is requested."""

    def __init__(self, driver: AsyncpgDriver, here: LocalDispatcher, clock: Clock) -> None:
        names = DBSettings.model_validate(NAMES)
        builders = QueryBuilderEnvironment(names), QueryQueueBuilder(names), QuerySchedulerBuilder(names)
        super().__init__(driver, *builders)
        self._here = here
        self._clock = clock

    async def dequeue(
        self,
        batch_size: int,
        entrypoints: dict[QueueEntrypoint, EntrypointExecutionParameter],
        queue_manager_id: QueueManagerId,
        global_concurrency_limit: int | None,
        heartbeat_timeout: timedelta,
    ) -> list[Job]:
        await self._here.wait_for_room()
        limit = min(batch_size, self._here.room)
        if limit == 0:  # stopped: start nothing more
            return []
        rest = (entrypoints, queue_manager_id, global_concurrency_limit, heartbeat_timeout)
        jobs = await super().dequeue(limit, *rest)
        for job in jobs:
            if job.payload is not None:
                self._here.wake(RunId(job.payload.decode()), self._clock.now())
        return jobs


class PgQueuerDispatcher:
    """Implements `Dispatcher` on PgQueuer.

    Commits write their own jobs. Calling `wake` for a committed change would only work on the run twice."""

    def __init__(self, connect: Connect, wakes: Wakes, clock: Clock, worker: str, concurrency: int = 1000) -> None:
        self._connect = connect
        self._clock = clock
        self._application = name_connection(worker, concurrency)
        self._here = LocalDispatcher(wakes, clock, worker, concurrency)
        self._manager: QueueManager | None = None
        self._supervising: asyncio.Task[None] | None = None
        self._stopping = False

    async def start(self, work: Work) -> None:
        await self._here.start(work)
        self._supervising = asyncio.create_task(self._supervise(), name="treadle-queue")

    def wake(self, run_id: RunId, at: Instant) -> None:
        """Work on this run in this process at this time."""
        self._here.wake(run_id, at)

    async def stop(self, grace: float = 0.0) -> None:
        self._stopping = True
        if self._manager is not None:
            self._manager.shutdown.set()
        await self._here.stop(grace)
        if self._supervising is not None:
            if self._manager is not None:  # it marks its finished jobs as done
                await asyncio.wait({self._supervising}, timeout=CLOSE_SECONDS)
            self._supervising.cancel()
            await asyncio.wait({self._supervising})

    @property
    def busy(self) -> bool:
        """Whether a run is in progress here or about to start."""
        return self._here.busy

    # ── Jobs ──

    async def _finish_job(self, _: Job) -> None:
        if self._stopping:
            raise RetryRequested(reason="this worker is stopping")

    async def _supervise(self) -> None:
        """Take jobs until stopped. PgQueuer gives up when the server goes away, so it is started again; the sweep
        continues."""
        loop, pause = asyncio.get_running_loop(), FIRST_PAUSE_SECONDS
        while not self._stopping:
            began = loop.time()
            try:
                await self._take_jobs()
            except Exception as error:
                cause = f"{type(error).__name__}: {error}"
                logger.warning("Reading the queue failed (%s); retrying in %.1f s", cause, pause)
            if loop.time() - began > LONGEST_PAUSE_SECONDS:
                pause = FIRST_PAUSE_SECONDS
            if not self._stopping:
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE_SECONDS)

    async def _take_jobs(self) -> None:
        connection = await self._connect({"application_name": self._application})
        try:
            await self._run_queue_manager(connection)
        finally:  # before any await, which a cancelled task would not reach
            self._manager = None
            connection.terminate()

    async def _run_queue_manager(self, connection: Any) -> None:
        driver = _Driver(connection)
        jobs = _Jobs(driver, self._here, self._clock)
        manager = self._manager = QueueManager(jobs, Channel(NAMES["channel"]))
        manager.entrypoint(JOB)(self._finish_job)

        def leave(_: object = None) -> None:
            manager.shutdown.set()

        connection.add_termination_listener(leave)  # report a lost connection at once
        if self._stopping:
            leave()
        log_cleaner = asyncio.create_task(_clear_log(jobs), name="treadle-queue-log")
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
            log_cleaner.cancel()
            await asyncio.gather(log_cleaner, return_exceptions=True)


def name_connection(worker: str, places: int) -> str:
    """Return the name of a worker's connection, by which others know that it is there: PostgreSQL lists connections
    with their names and forgets them when their processes end. The first 63 characters count."""
    place, _, mark = worker.rpartition(":")
    return f"treadle-worker {VERSION} {places} {mark} {'_'.join(place.split())}"


async def _clear_log(jobs: Queries) -> None:
    """Clear the log of finished jobs. The journal records what happened to each run."""
    while True:
        await jobs.clear_queue_log(JOB)
        await asyncio.sleep(LOG_CLEANUP_SECONDS)
