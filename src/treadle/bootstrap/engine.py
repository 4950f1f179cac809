"""The wiring of an open engine."""

import asyncio
import math
import os
import random
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack, nullcontext, suppress
from functools import cache, partial
from typing import TYPE_CHECKING, cast, get_args

import msgspec

from treadle.bootstrap.databases import open_stores
from treadle.bootstrap.engine_config import EngineConfig
from treadle.bootstrap.memory import make_memories
from treadle.bootstrap.stores import MonitoredDispatcher, Stores, make_suites
from treadle.config.agent_registry import EngineAgents, HomeAgents, ProgramAgents
from treadle.config.database_marker import record_database, refuse_missing_database
from treadle.config.database_url import list_database_files
from treadle.config.shared_settings import describe_settings
from treadle.domain.agents import AgentSpec
from treadle.domain.envelope import Event
from treadle.domain.errors import StoreError, UsageError
from treadle.domain.ids import AgentId, Instant, RunId
from treadle.domain.messages import Image
from treadle.domain.providers import ApiMode
from treadle.engine.deps import ChildDeps, EngineDeps, ModelDeps, SessionDeps, ToolDeps, ToolTimeouts, Worker
from treadle.engine.event_hub import EventHub
from treadle.engine.isolation import Isolation
from treadle.engine.loop import advance
from treadle.file_versions.home_store import HomeFileVersions
from treadle.home.definition_watch import DefinitionWatch, Shared
from treadle.home.hooks import make_agent_hooks
from treadle.home.mcp_status import HomeMcpStatus
from treadle.home.shared_skills import SharedHomeSkills
from treadle.home.skill_views import HomeSkills
from treadle.home.system_facts import HomeSystem
from treadle.home.workspaces import make_workspace_identifier
from treadle.models.formats import load_format
from treadle.operations.agent_version_service import AgentVersionService
from treadle.operations.automation import Automation
from treadle.operations.channel_manager import ChannelManager
from treadle.operations.context import Context, NoMetrics
from treadle.operations.memory_service import MemoryService
from treadle.operations.readiness import Readiness
from treadle.operations.retention import RetentionService, make_file_sweep
from treadle.operations.service import LocalService
from treadle.operations.shared_agents import SharedAgents
from treadle.operations.sign_in_service import SignInService
from treadle.operations.token_service import TokenService
from treadle.operations.usage import refuse_unless_running
from treadle.ports.clock import Clock
from treadle.ports.model import ModelRequest
from treadle.ports.sandbox import Command, CommandError, Finished
from treadle.sandbox.commands import ShellCommands
from treadle.system.clock import make_worker_name
from treadle.system.process_privacy import forbid_dumps
from treadle.system.workspace_identity import identify_workspace
from treadle.telemetry.resumed_runs import ResumedRuns
from treadle.tools.bash import find_git_use
from treadle.vault.secret_files import SecretFiles

if TYPE_CHECKING:
    from treadle.ports.notifications import Changed

TOOL_TIMEOUT_VARIABLE = "TREADLE_TOOL_TIMEOUT_SECS"
AGENT_TIMEOUT_VARIABLE = "TREADLE_AGENT_TOOL_TIMEOUT_SECS"


def encode_request(mode: str, request: ModelRequest) -> bytes:
    """Return the body of a request as it is sent, or in a generic JSON format for a model that a program has
    added."""
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
            "named_tool": request.named_tool,
        }
    )


TRY_SECONDS, TRY_POLL_SECONDS = 2.0, 0.01
"""How long a run that lacked something may take to be claimed, and how often it is looked at then."""


class EngineParts:
    """The parts of an open engine."""

    def __init__(
        self,
        dispatcher: MonitoredDispatcher,
        service: LocalService,
        context: Context,
        announce: Callable[[str], None],
        stop_runs: Callable[[], None],
        only_own: bool,
        clock: Clock,
        closing: AsyncExitStack,
        hub: EventHub,
        resumed: ResumedRuns | None,
    ) -> None:
        self.dispatcher = dispatcher
        self.service = service
        self.context = context
        self.announce = announce
        self._stop_runs = stop_runs
        self._only_own = only_own
        self._clock = clock
        self._closing = closing
        self._hub = hub
        self.resumed = resumed
        """The runs of earlier processes that it resumed, if it announces them."""
        self._wake_tasks: set[asyncio.Task[None]] = set()

    @classmethod
    async def open(cls, database: str, config: EngineConfig) -> "EngineParts":
        """Open the database and start working on its runs."""
        clock, ids = config.clock, config.ids
        forbid_dumps()
        _ = config.vault.redactor.is_idle  # a vault that cannot be read fails here, before anything is opened

        def wake(run_id: RunId, at: Instant) -> None:
            if at > clock.now() or not woken_by_commits or config.program.holds(run_id):
                dispatcher.wake(run_id, at)

        def take_over(run: "Changed") -> None:
            program = config.program
            if program.holds(run.run_id) or (run.lacking and not only_own and program.may_have_all(run.run_id)):
                dispatcher.wake(run.run_id, clock.now())

        async with AsyncExitStack() as opened:
            hub = EventHub(clock, ids, wake)
            stores = await _open_stores(database, config, hub)
            opened.push_async_callback(stores.close)
            hub.observers.append(config.program.observe)
            resumed = None
            if config.announces_resumed:
                resumed = ResumedRuns(clock.now())
                hub.claim_observers.append(resumed.take)
                hub.observers.append(resumed.observe)
                opened.callback(resumed.flush)
            opened.callback(hub.on_lost, StoreError("The engine was closed. Open it again to continue."))
            if config.telemetry is not None:
                watch = await config.telemetry.begin(stores.journal, stores.runs, opened, stores.shared)
                hub.observers.append(watch)
                hub.handover_observers.append(watch.forget)
                hub.claim_observers.append(watch.take)
            files = ProgramAgents(HomeAgents(config.home), config.agents)
            versions = AgentVersionService(stores.definitions(), files, config.vault, config.time_of_day)
            watch = await _make_definition_watch(config, stores, versions, hub, opened)
            deps = await _make_deps(config, database, stores, hub, opened, versions)
            only_own = config.share.only_own and (stores.shared or config.share.even_alone)
            woken_by_commits = stores.shared and not only_own
            dispatcher = stores.dispatcher(clock, deps.worker.name, config.share)
            if config.share.most > 0:
                stores.provide_deps(deps.worker.name, config.program)
                hub.news_observers.append(take_over)
            opened.push_async_callback(dispatcher.stop)
            service = LocalService(
                stores.journal,
                stores.runs,
                stores.approvals,
                stores.sessions,
                hub,
                config.models,
                config.tools,
                config.vault,
                clock,
                ids,
                stores.books,
                config.credits_per_dollar,
                stores.results,
                identify=make_workspace_identifier(config.home),
                find_version=versions.current,
                explain_missing_sandbox=partial(_explain_missing_sandbox, config.commands),
            )
            work = partial(advance, deps=deps)
            await dispatcher.start(work if config.telemetry is None else config.telemetry.around(work))
            context = _context(
                config=config,
                database=database,
                stores=stores,
                deps=deps,
                service=service,
                hub=hub,
                versions=versions,
                watch=watch,
                automation=_make_lazy_automation(config, stores, service, hub),
            )
            opened.push_async_callback(context.access.close)
            opened.push_async_callback(context.sign_ins.close)
            announce, stop_runs = stores.announce, deps.stopping.set
            return cls(
                dispatcher=dispatcher,
                service=service,
                context=context,
                announce=announce,
                stop_runs=stop_runs,
                only_own=only_own,
                clock=clock,
                closing=opened.pop_all(),
                hub=hub,
                resumed=resumed,
            )

    def wake_unavailable(self) -> None:
        """Wake runs that wait for something that this process may have by now, unless other workers are
        responsible for them."""
        if self._only_own:
            return
        task = asyncio.get_running_loop().create_task(self._wake_unavailable())
        self._wake_tasks.add(task)
        task.add_done_callback(self._wake_tasks.discard)

    async def _wake_unavailable(self) -> None:
        for record in await self.service.list_unfinished():
            if record.waiting_for == "unavailable":
                self.dispatcher.wake(record.origin.run_id, self._clock.now())

    async def try_again(self, run_id: RunId) -> bool:
        """Let a run that waits for something look whether it is here now. Return whether it continues."""
        claimed = asyncio.Event()

        def observe(events: Sequence[Event]) -> None:
            if events and events[0].run_id == run_id:
                claimed.set()

        self._hub.claim_observers.append(observe)
        try:
            self.dispatcher.wake(run_id, self._clock.now())
            with suppress(TimeoutError):
                async with asyncio.timeout(TRY_SECONDS):
                    await claimed.wait()
            while await self._is_unavailable(run_id):
                if run_id not in self._hub.list_owned_runs():
                    return False
                await asyncio.sleep(TRY_POLL_SECONDS)
            return True
        finally:
            self._hub.claim_observers.remove(observe)

    async def _is_unavailable(self, run_id: RunId) -> bool:
        return (await self.service.run(run_id)).waiting_for == "unavailable"

    async def drain(self, seconds: float) -> None:
        """Accept nothing new, and release each run at its next safe point, or after this many seconds."""
        self._stop_runs()
        await self.dispatcher.stop(seconds)

    async def close(self) -> None:
        for task in self._wake_tasks:
            task.cancel()
        await self._closing.aclose()


async def _explain_missing_sandbox(commands: ShellCommands) -> str:
    """Return why this machine cannot confine commands, and what to do; empty if it can."""
    try:
        found = await commands.confinement()
    except CommandError as error:
        return str(error)
    return "" if found.sandbox else found.reason


async def _open_stores(database: str, config: EngineConfig, hub: EventHub) -> Stores:
    """Open the database. That of the home is not created anew if the home had one before."""
    if config.database is not None:
        return await open_stores(database, hub, config.clock)
    refuse_missing_database(config.home)
    stores = await open_stores(database, hub, config.clock)
    record_database(config.home)
    return stores


async def _make_deps(
    config: EngineConfig,
    database: str,
    stores: Stores,
    hub: EventHub,
    opened: AsyncExitStack,
    versions: AgentVersionService,
) -> EngineDeps:
    """Return the dependencies of the run loop on one database."""
    memories = make_memories(stores.memories, config.models.address, config.vault, config.clock)
    opened.push_async_callback(memories.close)
    await memories.start()

    async def identity(name: str) -> AgentId:
        return await stores.runs.agent(name, AgentId(config.ids("agt")))

    agents = EngineAgents(
        HomeAgents(config.home),
        config.agents,
        partial(refuse_unless_running, states=stores.books),
        identity,
        versions.current,
    )
    models, tools, results, timeouts = config.models, config.tools, stores.results, _read_timeouts()
    workspace = config.run_places.open_workspace
    file_versions = HomeFileVersions(
        config.home.file_versions, (config.home.path, *list_database_files(database)), config.clock
    )
    opened.push_async_callback(file_versions.close)
    return EngineDeps(
        worker=Worker(
            name=make_worker_name(),
            journal=stores.journal,
            hub=hub,
            clock=config.clock,
            ids=config.ids,
            random=random.random,
            vault=config.vault,
        ),
        models=ModelDeps(models, tools, config.agent_context, config.tool_search),
        tools=ToolDeps(
            tools=tools,
            timeouts=timeouts,
            hooks=config.hooks,
            agent_hooks=make_agent_hooks(config.home, config.commands, config.run_places.protected),
            approvals=stores.approvals,
            results=results,
            memories=memories,
            agent_context=config.agent_context,
            workspace=workspace,
            hidden=(config.home.path, *list_database_files(database)),
            places=config.places,
            program=config.program,
            file_versions=file_versions,
        ),
        children=ChildDeps(
            models=models,
            tools=tools,
            timeouts=timeouts,
            agents=agents,
            sessions=stores.sessions,
            workspace=workspace,
            identify_workspace=identify_workspace,
            program=config.program,
        ),
        session=SessionDeps(models, stores.sessions, results, memories),
        find_answer_error=config.answer_types.find_error,
        isolation=Isolation(has_other_workers=stores.shared),
    )


async def _make_definition_watch(
    config: EngineConfig, stores: Stores, versions: AgentVersionService, hub: EventHub, opened: AsyncExitStack
) -> DefinitionWatch:
    """Return what notices changes of agents and skills. If processes share them, it works from now on."""
    storage, shared = config.home.config().storage, list[Shared]()
    if stores.shared and storage.agents == "database":
        shared.append(SharedAgents(versions))
    if stores.shared and storage.skills == "database":
        shared.append(SharedHomeSkills(config.home.path, stores.definitions(), config.time_of_day))
    watch = DefinitionWatch(versions, tuple(shared))
    if shared:
        await watch.synchronize()
        hub.definition_observers.append(watch.on_news)
        await opened.enter_async_context(watch.run_in_background())
    return watch


def _make_lazy_automation(
    config: EngineConfig, stores: Stores, service: LocalService, hub: EventHub
) -> Callable[[], Automation]:
    @cache
    def make() -> Automation:
        from treadle.bootstrap.automation import (
            make_automation,  # not needed by an engine that only runs agents
        )

        return make_automation(config, stores, service, hub)

    return make


def _make_lazy_channels(
    config: EngineConfig, stores: Stores, service: LocalService, hub: EventHub
) -> "Callable[[], ChannelManager]":
    if config.channels is not None:
        config.channels.store = stores.channels  # the tool `send_message` stores messages there

    @cache
    def make() -> "ChannelManager":
        from treadle.bootstrap.channels import make_channels  # only for a server and its administration

        return make_channels(config, stores, service, hub)

    return make


async def _fetch_image(url: str, max_bytes: int) -> Image:
    from treadle.tools.web.images import fetch_image  # few requests link to images

    return await fetch_image(url, max_bytes)


def _context(
    config: EngineConfig,
    database: str,
    stores: Stores,
    deps: EngineDeps,
    service: LocalService,
    hub: EventHub,
    versions: AgentVersionService,
    watch: DefinitionWatch,
    automation: Callable[[], Automation],
) -> Context:
    """Return the context of calls from outside, with every service of the engine."""
    memories = stores.memories
    access = TokenService(stores.tokens, config.time_of_day, config.ids)
    return Context(
        service=service,
        sessions=stores.sessions,
        vault=config.vault,
        memory=MemoryService(memories, deps.session.memories, memories, config.vault, config.clock, config.ids),
        access=access,
        sign_ins=SignInService(stores.sign_ins, access, config.time_of_day, config.ids),
        requests=stores.requests,
        retention=RetentionService(
            stores.deletions,
            config.clock,
            sweep_files=make_file_sweep(lambda: deps.tools.file_versions, stores.runs),
        ),
        file_versions=lambda: deps.tools.file_versions,
        automation=automation,
        agents=versions.files,
        versions=lambda: versions,
        evaluations=stores.evaluations,
        suites=lambda: make_suites(config.home.path),
        watch_definitions=(nullcontext if watch.is_shared else watch.run_in_background),
        secrets=SecretFiles(config.home.path, os.environ),
        reload_secrets=config.vault.refresh,
        now=config.clock.now,
        overview=stores.overview,
        system=HomeSystem(
            config.home,
            database,
            stores.overview,
            config.models,
            config.home_tasks,
            config.time_of_day.now(),
        ),
        skills=HomeSkills(config.home.path),
        encode_request=encode_request,
        fetch_image=_fetch_image,
        run_command=partial(_run_user_command, config),
        mcp=HomeMcpStatus(config.home, config.mcp),
        channels=_make_lazy_channels(config, stores, service, hub),
        home=config.home.path,
        settings=lambda: describe_settings(config.home.config()),
        readiness=Readiness(stores.verify_writable, config.clock),
        metrics=NoMetrics() if config.telemetry is None else config.telemetry.metrics or NoMetrics(),
    )


async def _run_user_command(config: EngineConfig, agent: AgentSpec, text: str, seconds: float) -> Finished:
    """Run a command of the user in the workspace of an agent, in the sandbox that the agent has."""
    command = Command(
        text, config.run_places.open_workspace(agent), agent.confinement, timeout=seconds, git=find_git_use(text)
    )
    return await config.commands.run(command, lambda _text: None)


def _read_timeouts() -> ToolTimeouts:
    normal = ToolTimeouts()
    return ToolTimeouts(
        _read_seconds(TOOL_TIMEOUT_VARIABLE, normal.default), _read_seconds(AGENT_TIMEOUT_VARIABLE, normal.agents)
    )


def _read_seconds(variable: str, default: float) -> float:
    value = os.environ.get(variable)
    try:
        seconds = default if value is None else float(value)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < math.inf:
        raise UsageError(f"{variable} is `{value}`; accepted: seconds, 0 for none.")
    return seconds
