"""The world of a simulation: one disk, the processes that run on it, and the external effects of their tools."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from contextvars import ContextVar, copy_context
from functools import cache, partial
from random import Random
from typing import Any, cast

import msgspec

from treadle.core.context.transcript import repair
from treadle.dispatch.local import LocalDispatcher
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import UsageError
from treadle.domain.ids import Instant, RunId
from treadle.domain.models import Prices, Profile
from treadle.domain.tools import ToolSpec
from treadle.engine.deps import ChildDeps, EngineDeps, ModelDeps, SessionDeps, ToolDeps, Worker
from treadle.engine.event_hub import EventHub
from treadle.engine.loop import advance
from treadle.engine.null_ports import NoVault
from treadle.models.breaker import CircuitBreaker
from treadle.operations.service import LocalService
from treadle.ports.model import Completed, Failed, Model, ModelRequest, Resolved, Show
from treadle.ports.tool import InvalidArguments, Subjects, Tool, ToolContext
from treadle.stores.sqlite.accounts import SqliteAccounts
from treadle.stores.sqlite.approvals import SqliteApprovals
from treadle.stores.sqlite.backup import ALL_PAGES
from treadle.stores.sqlite.connection import SqliteDatabase, apply_pragmas, connect, open_database
from treadle.stores.sqlite.journal import SqliteJournal
from treadle.stores.sqlite.results import SqliteResults
from treadle.stores.sqlite.sessions import SqliteSessions
from treadle.stores.sqlite.writer import InlineWriter
from treadle.testing.faults import FaultyJournal, Plan
from treadle.testing.models import ScriptStep, perform
from treadle.testing.simulation.agents import SimulatedAgents
from treadle.testing.time import CountingIds, LoopClock
from treadle.tools.delegation import agent_send, agent_spawn, invoke_agent

PROFILE = Profile(prices=Prices(input=1.0, output=10.0))
PROCESS: ContextVar["SimulatedProcess | None"] = ContextVar("process", default=None)


@cache
def _model_disk() -> SqliteDatabase:
    return open_database(":memory:")


def empty_disk() -> SqliteDatabase:
    """Return a database with all tables and no rows. Copying one takes a tenth of the time of creating it."""
    disk = connect(":memory:")
    with cast(Any, disk).backup("main", _model_disk(), "main") as backup:
        backup.step(ALL_PAGES)
    apply_pragmas(disk)
    return disk


class Violation(AssertionError):
    """An invariant does not hold."""


class World:
    """Everything that outlives a process."""

    def __init__(self, chance: Random, policy: Callable[[ModelRequest, "World"], ScriptStep]) -> None:
        self.chance = chance
        self.policy = policy
        self.disk: SqliteDatabase = empty_disk()
        self.clock = LoopClock()
        self.ids = CountingIds()
        self.processes: list[SimulatedProcess] = []
        self.effects: Counter[str] = Counter()
        """How often a tool took effect, by idempotency key."""
        self.violations: list[str] = []
        """Violations found where they cannot be raised."""
        self.at_risk: set[str] = set()
        """Idempotency keys of calls in progress when a process died or was told to stop."""

    def delay(self) -> float:
        """Return how long something takes: mostly almost no time, occasionally long."""
        return self.chance.choice((0.0, 0.001, 0.01, 0.1, self.chance.random()))

    def start(self, plan: Plan, sole: bool) -> "SimulatedProcess":
        if sole:  # pending writes of the previous process are complete by now
            self.at_risk |= find_calls_in_progress(self.disk)
        process = SimulatedProcess(self, plan, f"worker-{len(self.processes) + 1}", sole)
        self.processes.append(process)
        return process

    def alive(self) -> list["SimulatedProcess"]:
        return [process for process in self.processes if not process.journal.dead]


class SimulatedProcess:
    """One simulated process: an engine on the world's disk, which may die at any write."""

    def __init__(self, world: World, plan: Plan, name: str, sole: bool) -> None:
        self.world = world
        self.name = name
        self._sole = sole
        self._tasks: dict[asyncio.Task[Any], None] = {}
        self.hub = EventHub(world.clock, world.ids, self._wake)
        writer = InlineWriter(world.disk)
        self.store = SqliteJournal(writer, self.hub, world.clock)
        approvals = SqliteApprovals(writer)
        self.journal = FaultyJournal(self.store, plan, self._die, world.delay)
        self.dispatcher = LocalDispatcher(self.journal, world.clock, name)
        models = SimulatedModels(self)
        tools = SimulatedTools(self)
        sessions = SqliteSessions(writer)
        self.service = LocalService(
            self.journal,
            self.store,
            approvals,
            sessions,
            self.hub,
            models,
            tools,
            NoVault(),
            world.clock,
            world.ids,
            SqliteAccounts(writer, world.clock),
        )
        results = SqliteResults(writer)
        self.deps = EngineDeps(
            worker=Worker(
                name=name,
                journal=self.journal,
                hub=self.hub,
                clock=world.clock,
                ids=world.ids,
                random=world.chance.random,
            ),
            models=ModelDeps(models, tools),
            tools=ToolDeps(tools, approvals=approvals, results=results),
            children=ChildDeps(models, tools, agents=SimulatedAgents(), sessions=sessions),
            session=SessionDeps(models, sessions, results),
        )

    async def start(self) -> None:
        if self._sole:
            await self.store.void_leases()
        await self.dispatcher.start(partial(advance, deps=self.deps))

    def spawn(self, work: Coroutine[Any, Any, Any]) -> "asyncio.Task[Any]":
        """Start a task that lives as long as this process."""
        context = copy_context()
        context.run(PROCESS.set, self)
        return asyncio.get_running_loop().create_task(work, context=context)

    def adopt(self, task: "asyncio.Task[Any]") -> None:
        self._tasks[task] = None
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    def _wake(self, run_id: RunId, at: Instant) -> None:
        if not self.journal.dead:
            self.dispatcher.wake(run_id, at)

    def _die(self) -> None:
        self.world.at_risk |= find_calls_in_progress(self.world.disk)
        for task in tuple(self._tasks):
            task.cancel()


def adopting_factory(loop: asyncio.AbstractEventLoop, coroutine: Any, context: Any = None) -> "asyncio.Task[Any]":
    """A task factory that assigns every task to the process that started it."""
    task: asyncio.Task[Any] = asyncio.Task(coroutine, loop=loop, context=context)
    process = PROCESS.get() if context is None else context.get(PROCESS)
    if process is not None:
        process.adopt(task)
        if process.journal.dead:
            task.cancel()
    return task


def find_calls_in_progress(disk: SqliteDatabase) -> set[str]:
    """Return the idempotency keys of calls with a recorded intent and no recorded end."""
    rows = disk.execute("SELECT run, type, data FROM events WHERE type LIKE 'tool_call_%' ORDER BY position")
    open_calls: dict[tuple[int, str], str] = {}
    for run, type_, raw in rows:
        data = msgspec.json.decode(raw)
        if type_ == "tool_call_start":
            open_calls[run, data["call_id"]] = data["idempotency_key"]
        else:
            open_calls.pop((run, data["call_id"]), None)
    return set(open_calls.values())


class SimulatedModels:
    """Implements `ports.model.Models`. Every name resolves to the world's one model."""

    def __init__(self, process: SimulatedProcess) -> None:
        self._client = SimulatedModel(process)
        self._breaker = CircuitBreaker()

    def resolve(self, model: str, provider: str | None) -> Resolved:
        client: Model = self._client
        return Resolved(
            provider="simulated",
            model=model,
            api_mode="simulated",
            reason="there is no other",
            client=client,
            breaker=self._breaker,
            profile=PROFILE,
        )


class SimulatedModel:
    """Replies according to the world's policy, and checks every request."""

    def __init__(self, process: SimulatedProcess) -> None:
        self._process = process

    async def reply(self, request: ModelRequest, show: Show) -> Completed | Failed:
        world = self._process.world
        world.violations += find_request_faults(request)
        await asyncio.sleep(world.delay())
        return await perform(world.policy(request, world), show, lambda: world.delay() / 10)


def find_request_faults(request: ModelRequest) -> list[str]:
    """Return what a provider could reject in the structure of a request."""
    messages = tuple(request.conversation.messages)
    faults: list[str] = []
    if repair(messages) != messages:
        faults.append(f"a request is out of shape: {messages}")
    if messages[-1].role == "assistant":
        faults.append("a request ends with the assistant's own words")
    return faults


class SimulatedTools:
    """Implements `ports.tool.Toolbox`."""

    def __init__(self, process: SimulatedProcess) -> None:
        self._tools: dict[str, Tool] = {
            spec.name: SimulatedTool(process, spec)
            for spec in (
                ToolSpec("look", "Look something up.", {}, effect="read", repeatable=True),
                ToolSpec("watch", "Look, with a risk.", {}, effect="read", repeatable=False),
                ToolSpec("post", "Change the world.", {}, effect="external", repeatable=False),
                ToolSpec("sign", "Change the world, if a person agrees.", {}, effect="external", repeatable=False),
            )
        }
        for tool in (agent_spawn, agent_send, invoke_agent):
            self._tools[tool.spec.name] = tool

    def find(self, name: str, agent: AgentSpec | None = None) -> Tool | None:
        return self._tools.get(name)

    def select(self, allowlist: Sequence[str], agent: AgentSpec | None = None) -> tuple[Tool, ...]:
        if "*" in allowlist:
            return tuple(self._tools.values())
        if unknown := [name for name in allowlist if name not in self._tools]:
            raise UsageError(f"no tool is called `{unknown[0]}`")
        return tuple([self._tools[name] for name in allowlist])


class SimulatedTool:
    """Takes effect once per execution, at some point during it."""

    def __init__(self, process: SimulatedProcess, spec: ToolSpec) -> None:
        self._process = process
        self.spec = spec

    def parse(self, arguments: str) -> Any:
        decoded = msgspec.json.decode(arguments)
        if "n" not in decoded:
            raise InvalidArguments("`n` is missing")
        return decoded

    def subjects(self, arguments: Any) -> Subjects:
        return Subjects((self.spec.name,))

    async def run(self, arguments: Any, context: ToolContext) -> str:
        world = self._process.world
        await asyncio.sleep(world.delay())
        if self._process.journal.dead:
            raise asyncio.CancelledError
        world.effects[context.idempotency_key] += 1
        context.progress("half way")
        await asyncio.sleep(world.delay())
        if arguments.get("fail"):
            raise RuntimeError("the tool failed")
        return f"{self.spec.name} {arguments['n']} done"


class SimulatedReader:
    """Reads the events of a run, and reconnects after a crash where it stopped."""

    def __init__(self, run_id: RunId) -> None:
        self.run_id = run_id
        self.last = 0
        self.given: list[str] = []
        """The ids of the durable events received."""
        self.ended = False
        self.process: SimulatedProcess | None = None

    async def follow(self, process: SimulatedProcess) -> None:
        self.process = process
        async for event in process.service.events(self.run_id, self.last):
            if event.durable:
                if event.sequence != self.last + 1:
                    raise Violation(f"{self.run_id}: a reader at {self.last} was given {event.sequence}")
                self.last = event.sequence
                self.given.append(event.event_id)
                self.ended = event.type == "run_end"
