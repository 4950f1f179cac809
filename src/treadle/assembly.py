"""The parts of an open engine, and how they are put together: here stand the names of concrete classes."""

import asyncio
import math
import os
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, cast, get_args

import msgspec

from treadle.database_url import files_of, path_of
from treadle.dispatch.local import LocalDispatcher
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import StoreError, StoreFull, UsageError
from treadle.domain.identity import AgentId, Instant, RunId
from treadle.domain.providers import ApiMode
from treadle.engine.absent import NoVault
from treadle.engine.deps import Deps, ToolTimeouts
from treadle.engine.hub import Hub
from treadle.engine.loop import advance
from treadle.home import Home
from treadle.known_agents import EngineAgents, HomeAgents
from treadle.memory_assembly import memories_on
from treadle.models.formats import format_of
from treadle.models.registry import ModelRegistry
from treadle.ports.clock import Clock, Ids
from treadle.ports.hooks import Hook
from treadle.ports.model import ModelRequest
from treadle.ports.surroundings import Surroundings
from treadle.ports.tool import Toolbox
from treadle.ports.vault import Vault
from treadle.sandbox.secrecy import undumpable
from treadle.service import LocalService
from treadle.service.access import Access
from treadle.service.automating import Automation
from treadle.service.front import Front
from treadle.service.keeping import Housekeeping
from treadle.service.memory import MemoryService
from treadle.service.usage import refuse_unless_running
from treadle.stores.sqlite.access import SqliteRequests, SqliteTokens
from treadle.stores.sqlite.accounts import SqliteAccounts
from treadle.stores.sqlite.approvals import SqliteApprovals
from treadle.stores.sqlite.connection import open_database, open_reader, open_to_look
from treadle.stores.sqlite.deleting import SqliteDeletions
from treadle.stores.sqlite.journal import SqliteJournal
from treadle.stores.sqlite.lock import DatabaseLock
from treadle.stores.sqlite.memory import SqliteMemories
from treadle.stores.sqlite.results import SqliteResults
from treadle.stores.sqlite.sessions import SqliteSessions
from treadle.stores.sqlite.writer import InlineWriter, ThreadWriter, Writer
from treadle.system import SystemClock, TimeOrderedIds, worker_name
from treadle.tools.toolbox import ToolRegistry
from treadle.vault.vault import HomeVault

if TYPE_CHECKING:
    from treadle.telemetry_assembly import Observing

TOOL_TIMEOUT = "TREADLE_TOOL_TIMEOUT_SECS"
AGENT_TIMEOUT = "TREADLE_AGENT_TOOL_TIMEOUT_SECS"


@dataclass(frozen=True, slots=True)
class Known:
    """What an engine knows before it is opened, and may learn more of while it is open."""

    home: Home
    models: ModelRegistry
    tools: ToolRegistry
    hooks: list[Hook]
    vault: HomeVault
    surroundings: Surroundings
    clock: Clock
    ids: Ids
    observing: "Observing | None" = None
    """Who counts, logs and traces what is committed; None: nobody."""
    credits_per_dollar: float = 1.0
    agents: dict[str, AgentSpec] = field(default_factory=dict[str, AgentSpec])
    """Those that a program has brought along."""


@asynccontextmanager
async def observe(
    database: str | None = None,
    *,
    home: Home | None = None,
    tools: Toolbox | None = None,
    vault: Vault | None = None,
) -> AsyncGenerator[LocalService, None]:
    """Look at a database without owning it: nothing is worked on, and its owner, if it has one, goes on."""
    where = database or (home or Home.from_environment(os.environ)).database_url
    clock, ids = SystemClock(), TimeOrderedIds()
    hub = Hub(clock, ids, lambda _run, _at: None)
    writer = InlineWriter(open_to_look(path_of(where)))
    journal = SqliteJournal(writer, hub, clock)
    approvals = SqliteApprovals(writer)
    try:
        sessions = SqliteSessions(writer)
        models, known, hidden = ModelRegistry({}), tools or ToolRegistry(), vault or NoVault()
        books = SqliteAccounts(writer, clock)
        yield LocalService(journal, journal, approvals, sessions, hub, models, known, hidden, clock, ids, books)
    finally:
        await journal.close()


def as_sent(mode: str, request: ModelRequest) -> bytes:
    """The body of a request as it goes over the wire; for a client that was brought along, in our own words."""
    if mode in get_args(ApiMode):
        return format_of(cast("ApiMode", mode)).encode(request)
    return msgspec.json.encode(
        {
            "model": request.model,
            "system": request.preamble.system,
            "tools": request.preamble.tools,
            "messages": request.conversation.messages,
            "settings": request.settings,
            "tool_choice": request.tool_choice,
            "aside": request.aside,
        }
    )


class Parts:
    """What an open engine consists of."""

    def __init__(
        self,
        dispatcher: LocalDispatcher,
        service: LocalService,
        front: Front,
        lock: DatabaseLock | None,
        clock: Clock,
        closing: AsyncExitStack,
    ) -> None:
        self.dispatcher = dispatcher
        self.service = service
        self.front = front
        self.lock = lock
        self._clock = clock
        self._closing = closing
        self._looking: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, database: str, known: Known) -> "Parts":
        path, clock, ids = path_of(database), known.clock, known.ids
        if not known.vault.redactor.is_idle:  # and a vault that cannot be read is told of now
            undumpable()

        def wake(run_id: RunId, at: Instant) -> None:
            dispatcher.wake(run_id, at)

        async with AsyncExitStack() as opened:
            lock = None if path == ":memory:" else DatabaseLock(path)
            if lock is not None:
                opened.callback(lock.release)
            hub = Hub(clock, ids, wake)
            writer = _writer(path, hub)
            journal = SqliteJournal(writer, hub, clock)
            opened.push_async_callback(journal.close)
            opened.callback(hub.lost, StoreError("The engine was closed; open it again to go on."))
            with suppress(StoreFull):  # then they run out by themselves; what is there can be read meanwhile
                await journal.void_leases()
            if known.observing is not None:
                await known.observing.begin(hub, journal, journal, opened)
            deps = await _deps(known, database, journal, writer, hub, opened)
            dispatcher = LocalDispatcher(journal, clock, deps.worker)
            opened.push_async_callback(dispatcher.stop)
            service = LocalService(
                journal,
                journal,
                deps.approvals,
                deps.sessions,
                hub,
                known.models,
                known.tools,
                known.vault,
                clock,
                ids,
                SqliteAccounts(writer, clock),
                known.credits_per_dollar,
            )
            work = partial(advance, deps=deps)
            await dispatcher.start(work if known.observing is None else known.observing.around(work))
            front = _front(known, path, writer, deps, _automation(known, writer, service, journal, hub))
            opened.push_async_callback(front.access.close)
            return cls(dispatcher, service, front, lock, clock, opened.pop_all())

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
        await self._closing.aclose()


async def _deps(
    known: Known, database: str, journal: SqliteJournal, writer: Writer, hub: Hub, opened: AsyncExitStack
) -> Deps:
    """What the loop needs, over one database."""
    memories = memories_on(writer, known.models, known.vault, known.clock)
    opened.push_async_callback(memories.close)
    await memories.start()

    async def identity(name: str) -> AgentId:
        return await journal.agent(name, AgentId(known.ids("agt")))

    states = SqliteAccounts(writer, known.clock)
    return Deps(
        journal,
        hub,
        known.models,
        known.tools,
        known.clock,
        known.ids,
        random.random,
        worker_name(),
        _timeouts(),
        hooks=known.hooks,
        vault=known.vault,
        surroundings=known.surroundings,
        workspace=known.home.workspace,
        hidden=(known.home.path, *files_of(database)),
        approvals=SqliteApprovals(writer),
        results=SqliteResults(writer),
        sessions=SqliteSessions(writer),
        memories=memories,
        agents=EngineAgents(
            HomeAgents(known.home), known.agents, partial(refuse_unless_running, states=states), identity
        ),
    )


def _automation(
    known: Known, writer: Writer, service: LocalService, journal: SqliteJournal, hub: Hub
) -> Callable[[], Automation]:
    @cache
    def made() -> Automation:
        from treadle.automation_assembly import automation  # which an engine that only runs agents does without

        return automation(known, writer, service, journal, hub)

    return made


def _front(known: Known, path: str, writer: Writer, deps: Deps, automation: Callable[[], Automation]) -> Front:
    memories = SqliteMemories(writer)
    return Front(
        Access(SqliteTokens(writer), known.clock, known.ids),
        SqliteRequests(writer),
        MemoryService(memories, deps.memories, memories, known.vault, known.clock, known.ids),
        Housekeeping(SqliteDeletions(writer, path, known.clock), known.clock),
        automation,
    )


def _writer(path: str, hub: Hub) -> Writer:
    connection = open_database(path)
    if path == ":memory:":
        return InlineWriter(connection)
    return ThreadWriter(connection, open_reader(path), path, hub.lost)


def _timeouts() -> ToolTimeouts:
    normal = ToolTimeouts()
    return ToolTimeouts(_seconds(TOOL_TIMEOUT, normal.default), _seconds(AGENT_TIMEOUT, normal.agents))


def _seconds(variable: str, otherwise: float) -> float:
    value = os.environ.get(variable)
    try:
        seconds = otherwise if value is None else float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise UsageError(f"{variable} is `{value}`; accepted: seconds, 0 for none.")
    return seconds
