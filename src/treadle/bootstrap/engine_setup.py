"""Builds the configuration of an engine: the models, tools, secrets and prompt context of its home."""

import os
from typing import TYPE_CHECKING, Any

from treadle.bootstrap.engine_config import EngineConfig
from treadle.bootstrap.stores import ALL, WorkerShare
from treadle.channels.recipients import ChannelRecipients
from treadle.config.database_url import list_database_files
from treadle.config.home import Home
from treadle.config.live_config import ConfigChange
from treadle.engine.program import HostProgram, MakeDeps
from treadle.home.agent_context import HomeAgentContext
from treadle.home.hooks import load_approved_hooks
from treadle.home.mcp import HomeMcp
from treadle.home.model_registry import make_model_registry
from treadle.home.run_places import RunPlaces
from treadle.home.sendable_files import SendableFiles
from treadle.home.system_facts import HomeTasks
from treadle.models.registry import ModelRegistry
from treadle.ports.clock import Clock, Ids
from treadle.sandbox.commands import ShellCommands
from treadle.system.clock import SteadyClock, SystemClock, TimeOrderedIds
from treadle.system.engine_places import list_engine_places
from treadle.telemetry.settings import Telemetry
from treadle.tools.builtin import INTERNAL_TOOLS, builtin_tools
from treadle.tools.toolbox import ToolRegistry
from treadle.tools.web.search_source import WebSearchSource
from treadle.vault.vault import HomeVault

if TYPE_CHECKING:
    from treadle.telemetry.engine_telemetry import EngineTelemetry


def configure_engine(
    database: str | None = None,
    home: Home | None = None,
    *,
    clock: Clock | None = None,
    ids: Ids | None = None,
    telemetry: Telemetry | None = None,
    share: WorkerShare = ALL,
    deps: Any = None,
    make_deps: MakeDeps | None = None,
    home_tasks: HomeTasks,
) -> EngineConfig:
    """Return the configuration of an engine on a database, by default on that of the home."""
    home = (home or Home.from_environment(os.environ)).with_live_config()
    steady_clock, time_of_day = clock or SteadyClock(), clock or SystemClock()
    config = home.config()
    vault = HomeVault(home.path, os.environ)
    models = make_model_registry(home, config, vault.value, steady_clock.monotonic)
    context = HomeAgentContext(home, config.house_rules)
    _follow_config(home, models, context)
    places = list_engine_places()
    hidden = (home.path, *list_database_files(database or home.database_url))
    run_places = RunPlaces(home, places, hidden)
    commands = ShellCommands(hidden=hidden, engine=places, user=os.environ)
    mcp = HomeMcp(home, vault, commands, database)
    tools = _make_tools(commands, vault, mcp)
    tools.add_source(
        WebSearchSource(lambda: home.config().web_search, lambda name: vault.value(name) or os.environ.get(name))
    )
    recipients = ChannelRecipients(config.channels, time_of_day)
    if config.channels:
        tools.add_source(recipients)
        recipients.files = SendableFiles(tools, home, vault, database)
    return EngineConfig(
        home=home,
        models=models,
        tools=tools,
        hooks=load_approved_hooks(home),
        vault=vault,
        agent_context=context,
        clock=steady_clock,
        ids=ids or TimeOrderedIds(),
        commands=commands,
        places=places,
        run_places=run_places,
        home_tasks=home_tasks,
        database=database,
        telemetry=None if telemetry is None else _make_telemetry(telemetry, home, models, vault, steady_clock, mcp),
        credits_per_dollar=config.credits.per_dollar,
        share=share,
        time_of_day=time_of_day,
        program=HostProgram(deps, make_deps, lambda text: vault.redactor.redact(text).text),
        mcp=mcp,
        channels=recipients,
        tool_search=config.mcp,
    )


def _make_telemetry(
    settings: Telemetry, home: Home, models: ModelRegistry, vault: HomeVault, clock: Clock, mcp: HomeMcp
) -> "EngineTelemetry":
    from treadle.telemetry.engine_telemetry import EngineTelemetry  # not needed without telemetry

    def list_breakers() -> list[tuple[str, str, str]]:
        return [(state.provider, state.model, state.phase) for state in models.breakers()]

    telemetry = EngineTelemetry(settings, home.ensure, list_breakers, vault, clock)
    telemetry.report_connections(lambda: [(name, connection.state) for name, connection in mcp.states])
    return telemetry


def _make_tools(commands: ShellCommands, vault: HomeVault, mcp: HomeMcp) -> ToolRegistry:
    """Return the built-in tools, those of plugins and those of MCP servers."""
    tools = ToolRegistry()
    tools.add_builtin(builtin_tools(commands, vault))
    tools.add_internal(INTERNAL_TOOLS)
    tools.add_plugins()
    tools.add_source(mcp.catalog)
    return tools


def _follow_config(home: Home, models: ModelRegistry, context: HomeAgentContext) -> None:
    """Apply a changed config.yaml to the models and the prompt."""

    def apply(change: ConfigChange) -> None:
        config = change.config
        models.catalog.reconfigure(config.aliases, config.models)
        models.reconfigure(config.providers, config.defaults.provider, config.defaults.model)
        context.set_rules(config.house_rules)

    assert home.live is not None
    home.live.listeners.append(apply)
