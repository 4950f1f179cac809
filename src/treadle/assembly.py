"""The parts of an open engine, and how they are put together: here stand the names of concrete classes."""

import asyncio
import math
import os
import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from functools import partial

from treadle.dispatch.local import LocalDispatcher
from treadle.domain.errors import StoreError, StoreFull, UsageError
from treadle.domain.identity import Instant, RunId
from treadle.engine.absent import NoVault
from treadle.engine.deps import Deps, ToolTimeouts
from treadle.engine.hub import Hub
from treadle.engine.loop import advance
from treadle.home import Home
from treadle.models.registry import ModelRegistry
from treadle.ports.clock import Clock, Ids
from treadle.ports.hooks import Hook
from treadle.ports.vault import Vault
from treadle.sandbox.secrecy import undumpable
from treadle.service import Service
from treadle.stores.sqlite.approvals import SqliteApprovals
from treadle.stores.sqlite.connection import open_database, open_reader, open_to_look
from treadle.stores.sqlite.journal import SqliteJournal
from treadle.stores.sqlite.lock import DatabaseLock
from treadle.stores.sqlite.results import SqliteResults
from treadle.stores.sqlite.writer import InlineWriter, ThreadWriter, Writer
from treadle.system import SystemClock, TimeOrderedIds, worker_name
from treadle.tools.toolbox import ToolRegistry

TOOL_TIMEOUT = "TREADLE_TOOL_TIMEOUT_SECS"


@dataclass(frozen=True, slots=True)
class Known:
    """What an engine knows before it is opened, and may learn more of while it is open."""

    home: Home
    models: ModelRegistry
    tools: ToolRegistry
    hooks: list[Hook]
    vault: Vault
    clock: Clock
    ids: Ids


@asynccontextmanager
async def observe(database: str | None = None, *, home: Home | None = None) -> AsyncGenerator[Service, None]:
    """Look at a database without owning it: nothing is worked on, and its owner, if it has one, goes on."""
    where = database or (home or Home.from_environment(os.environ)).database_url
    clock, ids = SystemClock(), TimeOrderedIds()
    hub = Hub(clock, ids, lambda _run, _at: None)
    writer = InlineWriter(open_to_look(path_of(where)))
    journal = SqliteJournal(writer, hub, clock)
    approvals = SqliteApprovals(writer)
    try:
        yield Service(journal, journal, approvals, hub, ModelRegistry({}), ToolRegistry(), NoVault(), clock, ids)
    finally:
        await journal.close()


class Parts:
    """What an open engine consists of."""

    def __init__(
        self,
        lock: DatabaseLock | None,
        hub: Hub,
        journal: SqliteJournal,
        dispatcher: LocalDispatcher,
        service: Service,
        clock: Clock,
    ) -> None:
        self._lock = lock
        self._hub = hub
        self._clock = clock
        self._journal = journal
        self.dispatcher = dispatcher
        self.service = service
        self._looking: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, database: str, known: Known) -> "Parts":
        path, clock, ids = path_of(database), known.clock, known.ids
        if not known.vault.redactor.is_idle:  # and a vault that cannot be read is told of now
            undumpable()
        lock = None if path == ":memory:" else DatabaseLock(path)
        journal: SqliteJournal | None = None
        try:
            worker = worker_name()

            def wake(run_id: RunId, at: Instant) -> None:
                dispatcher.wake(run_id, at)

            hub = Hub(clock, ids, wake)
            writer = _writer(path, hub)
            journal = SqliteJournal(writer, hub, clock)
            approvals = SqliteApprovals(writer)
            with suppress(StoreFull):  # then they run out by themselves; what is there can be read meanwhile
                await journal.void_leases()
            dispatcher = LocalDispatcher(journal, clock, worker)
            service = Service(journal, journal, approvals, hub, known.models, known.tools, known.vault, clock, ids)
            deps = Deps(
                journal,
                hub,
                known.models,
                known.tools,
                clock,
                ids,
                random.random,
                worker,
                _timeouts(),
                hooks=known.hooks,
                vault=known.vault,
                approvals=approvals,
                results=SqliteResults(writer),
                workspace=known.home.workspace,
                hidden=(known.home.path,),
            )
            await dispatcher.start(partial(advance, deps=deps))
        except BaseException:
            if journal is not None:
                await journal.close()
            if lock is not None:
                lock.release()
            raise
        return cls(lock, hub, journal, dispatcher, service, clock)

    def look_again(self) -> None:
        task = asyncio.get_running_loop().create_task(self._look_again())
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)

    async def _look_again(self) -> None:
        for record in await self.service.unfinished():
            if record.waiting_for == "unavailable":
                self.dispatcher.wake(record.origin.run_id, self._clock.now())

    async def close(self) -> None:
        for task in self._looking:
            task.cancel()
        try:
            await self.dispatcher.stop()
            self._hub.lost(StoreError("The engine was closed; open it again to go on."))
            await self._journal.close()
        finally:
            if self._lock is not None:
                self._lock.release()


def path_of(database: str) -> str:
    """The file that a database URL names."""
    scheme, separator, path = database.partition(":///")
    if separator and scheme == "sqlite" and path:
        return path
    if database.startswith("postgresql:"):
        raise UsageError("PostgreSQL is not in this version yet; use sqlite:///PATH.")
    raise UsageError(
        f"`{database}` is not a database URL; accepted: sqlite:///PATH (sqlite:////PATH from the root)."
    )


def _writer(path: str, hub: Hub) -> Writer:
    connection = open_database(path)
    if path == ":memory:":
        return InlineWriter(connection)
    return ThreadWriter(connection, open_reader(path), path, hub.lost)


def _timeouts() -> ToolTimeouts:
    value = os.environ.get(TOOL_TIMEOUT)
    try:
        seconds = ToolTimeouts().default if value is None else float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise UsageError(f"{TOOL_TIMEOUT} is `{value}`; accepted: seconds, 0 for none.")
    return ToolTimeouts(seconds)
