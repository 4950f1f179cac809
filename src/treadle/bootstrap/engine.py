"""The parts of an open engine, and how they are put together: here stand the names of concrete classes."""

import asyncio
import math
import os
import random
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import cache, partial
from typing import TYPE_CHECKING, cast, get_args

import msgspec

from treadle.bootstrap.memory import make_memories
from treadle.bootstrap.stores import (
    ALL,
    MonitoredDispatcher,
    Stores,
    WorkerShare,
    open_stores,
    open_stores_readonly,
)
from treadle.config.agent_registry import EngineAgents, HomeAgents
from treadle.config.database_url import database_files
from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import StoreError, UsageError
from treadle.domain.ids import AgentId, Instant, RunId
from treadle.domain.providers import ApiMode
from treadle.engine.deps import EngineDeps, ToolTimeouts
from treadle.engine.event_hub import EventHub
from treadle.engine.loop import advance
from treadle.engine.null_ports import NoVault
from treadle.models.formats import load_format
from treadle.models.registry import ModelRegistry
from treadle.operations.automation import Automation
from treadle.operations.context import Context, NoMetrics
from treadle.operations.memory_service import MemoryService
from treadle.operations.retention import Housekeeping
from treadle.operations.service import LocalService
from treadle.operations.token_service import Access
from treadle.operations.usage import refuse_unless_running
from treadle.ports.agent_context import AgentContext
from treadle.ports.clock import Clock, Ids
from treadle.ports.hooks import Hook
from treadle.ports.model import ModelRequest
from treadle.ports.tool import Toolbox
from treadle.ports.vault import Vault
from treadle.system.clock import SystemClock, TimeOrderedIds, worker_name
from treadle.system.process_privacy import forbid_dumps
from treadle.tools.toolbox import ToolRegistry
from treadle.vault.secret_files import SecretFiles
from treadle.vault.vault import HomeVault

if TYPE_CHECKING:
    from treadle.bootstrap.telemetry import EngineTelemetry

TOOL_TIMEOUT_VARIABLE = "TREADLE_TOOL_TIMEOUT_SECS"
AGENT_TIMEOUT_VARIABLE = "TREADLE_AGENT_TOOL_TIMEOUT_SECS"


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """What an engine knows before it is opened, and may learn more of while it is open."""

    home: Home
    models: ModelRegistry
    tools: ToolRegistry
    hooks: list[Hook]
    vault: HomeVault
    agent_context: AgentContext
    clock: Clock
    ids: Ids
    observing: "EngineTelemetry | None" = None
    """Who counts, logs and traces what is committed; None: nobody."""
    credits_per_dollar: float = 1.0
    agents: dict[str, AgentSpec] = field(default_factory=dict[str, AgentSpec])
    """Those that a program has brought along."""
    share: WorkerShare = ALL
    """What it takes of the work."""
    time_of_day: Clock = field(default_factory=SystemClock)
    """Follows the clock of the machine, also when it is set; `clock` does not."""


@asynccontextmanager
async def open_service_readonly(
    database: str | None = None,
    *,
    home: Home | None = None,
    tools: Toolbox | None = None,
    vault: Vault | None = None,
) -> AsyncGenerator[LocalService, None]:
    """Look at a database without owning it: nothing is worked on, and its owner, if it has one, goes on."""
    where = database or (home or Home.from_environment(os.environ)).database_url
    async with open_stores_readonly(where) as stores:
        yield local_service(stores, vault or NoVault(), tools)


def local_service(stores: Stores, vault: Vault, tools: Toolbox | None = None) -> LocalService:
    """Return the service over a database that no engine works on."""
    clock, ids = SystemClock(), TimeOrderedIds()
    return LocalService(
        stores.journal,
        stores.runs,
        stores.approvals,
        stores.sessions,
        EventHub(clock, ids, lambda _run, _at: None),
        ModelRegistry({}),
        tools or ToolRegistry(),
        vault,
        clock,
        ids,
        stores.books,
    )


def encode_request(mode: str, request: ModelRequest) -> bytes:
    """The body of a request as it goes over the wire; for a client that was brought along, in our own words."""
    if mode in get_args(ApiMode):
        return load_format(cast("ApiMode", mode)).encode(request)
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


class EngineParts:
    """What an open engine consists of."""

    def __init__(
        self,
        dispatcher: MonitoredDispatcher,
        service: LocalService,
        context: Context,
        announce: Callable[[str], None],
        leave: Callable[[], None],
        only_own: bool,
        clock: Clock,
        closing: AsyncExitStack,
    ) -> None:
        self.dispatcher = dispatcher
        self.service = service
        self.context = context
        self.announce = announce
        self._leave = leave
        self._only_own = only_own
        self._clock = clock
        self._closing = closing
        self._looking: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, database: str, known: EngineConfig) -> "EngineParts":
        clock, ids = known.clock, known.ids
        forbid_dumps()
        _ = known.vault.redactor.is_idle  # a vault that cannot be read fails here, before anything is opened

        def wake(run_id: RunId, at: Instant) -> None:
            if at > clock.now() or not told_by_commits:
                dispatcher.wake(run_id, at)

        async with AsyncExitStack() as opened:
            hub = EventHub(clock, ids, wake)
            stores = await open_stores(database, hub, clock)
            opened.push_async_callback(stores.close)
            opened.callback(hub.lost, StoreError("The engine was closed; open it again to go on."))
            if known.observing is not None:
                await known.observing.begin(hub, stores.journal, stores.runs, opened, stores.shared)
            deps = await _make_deps(known, database, stores, hub, opened)
            only_own = stores.shared and known.share.only_own
            told_by_commits = stores.shared and not only_own
            dispatcher = stores.dispatcher(clock, deps.worker, known.share)
            opened.push_async_callback(dispatcher.stop)
            service = LocalService(
                stores.journal,
                stores.runs,
                stores.approvals,
                stores.sessions,
                hub,
                known.models,
                known.tools,
                known.vault,
                clock,
                ids,
                stores.books,
                known.credits_per_dollar,
            )
            work = partial(advance, deps=deps)
            await dispatcher.start(work if known.observing is None else known.observing.around(work))
            context = _context(known, stores, deps, service, _make_lazy_automation(known, stores, service, hub))
            opened.push_async_callback(context.access.close)
            announce, leave = stores.announce, deps.stopping.set
            return cls(dispatcher, service, context, announce, leave, only_own, clock, opened.pop_all())

    def look_again(self) -> None:
        """At runs that wait for something this process may have by now, unless they are for others to look at."""
        if self._only_own:
            return
        task = asyncio.get_running_loop().create_task(self._look_again())
        self._looking.add(task)
        task.add_done_callback(self._looking.discard)

    async def _look_again(self) -> None:
        for record in await self.service.unfinished():
            if record.waiting_for == "unavailable":
                self.dispatcher.wake(record.origin.run_id, self._clock.now())

    async def drain(self, seconds: float) -> None:
        """Take nothing new, and let go of each run as soon as it comes to a safe point; after so many seconds, of
        all that is left."""
        self._leave()
        await self.dispatcher.stop(seconds)

    async def close(self) -> None:
        for task in self._looking:
            task.cancel()
        await self._closing.aclose()


async def _make_deps(
    known: EngineConfig, database: str, stores: Stores, hub: EventHub, opened: AsyncExitStack
) -> EngineDeps:
    """What the loop needs, over one database."""
    memories = make_memories(stores.memories, known.models, known.vault, known.clock)
    opened.push_async_callback(memories.close)
    await memories.start()

    async def identity(name: str) -> AgentId:
        return await stores.runs.agent(name, AgentId(known.ids("agt")))

    return EngineDeps(
        stores.journal,
        hub,
        known.models,
        known.tools,
        known.clock,
        known.ids,
        random.random,
        worker_name(),
        _read_timeouts(),
        hooks=known.hooks,
        vault=known.vault,
        agent_context=known.agent_context,
        workspace=known.home.workspace,
        hidden=(known.home.path, *database_files(database)),
        approvals=stores.approvals,
        results=stores.results,
        sessions=stores.sessions,
        memories=memories,
        agents=EngineAgents(
            HomeAgents(known.home), known.agents, partial(refuse_unless_running, states=stores.books), identity
        ),
    )


def _make_lazy_automation(
    known: EngineConfig, stores: Stores, service: LocalService, hub: EventHub
) -> Callable[[], Automation]:
    @cache
    def made() -> Automation:
        from treadle.bootstrap.automation import (
            make_automation,  # which an engine that only runs agents does without
        )

        return make_automation(known, stores, service, hub)

    return made


def _context(
    known: EngineConfig,
    stores: Stores,
    deps: EngineDeps,
    service: LocalService,
    automation: Callable[[], Automation],
) -> Context:
    """Return the context of calls from outside, with every service of the engine."""
    memories = stores.memories
    return Context(
        service=service,
        sessions=stores.sessions,
        vault=known.vault,
        memory=MemoryService(memories, deps.memories, memories, known.vault, known.clock, known.ids),
        access=Access(stores.tokens, known.time_of_day, known.ids),
        requests=stores.requests,
        house=Housekeeping(stores.deletions, known.clock),
        automation=automation,
        agents=HomeAgents(known.home),
        secrets=SecretFiles(known.home.path, os.environ),
        now=known.clock.now,
        metrics=NoMetrics() if known.observing is None else known.observing.metrics or NoMetrics(),
    )


def _read_timeouts() -> ToolTimeouts:
    normal = ToolTimeouts()
    return ToolTimeouts(
        _read_seconds(TOOL_TIMEOUT_VARIABLE, normal.default), _read_seconds(AGENT_TIMEOUT_VARIABLE, normal.agents)
    )


def _read_seconds(variable: str, otherwise: float) -> float:
    value = os.environ.get(variable)
    try:
        seconds = otherwise if value is None else float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise UsageError(f"{variable} is `{value}`; accepted: seconds, 0 for none.")
    return seconds
