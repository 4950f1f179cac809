"""Builds the configuration of an engine: the models, tools, secrets and prompt context of its home."""

import os

from treadle.bootstrap.agent_context import HomeAgentContext
from treadle.bootstrap.engine import EngineConfig
from treadle.bootstrap.stores import ALL, WorkerShare
from treadle.config.database_url import database_files
from treadle.config.home import Home
from treadle.models.catalog import Catalog
from treadle.models.registry import ModelRegistry
from treadle.ports.clock import Clock, Ids
from treadle.sandbox.commands import ShellCommands
from treadle.system.clock import SteadyClock, SystemClock, TimeOrderedIds
from treadle.telemetry.settings import Telemetry
from treadle.tools.builtin import builtin_tools
from treadle.tools.toolbox import ToolRegistry
from treadle.vault.vault import HomeVault


def configure_engine(
    database: str | None = None,
    home: Home | None = None,
    *,
    clock: Clock | None = None,
    ids: Ids | None = None,
    telemetry: Telemetry | None = None,
    share: WorkerShare = ALL,
) -> EngineConfig:
    """Return the configuration of an engine on a database, by default on that of the home."""
    home = home or Home.from_environment(os.environ)
    steady_clock = clock or SteadyClock()
    config = home.config()
    vault = HomeVault(home.path, os.environ)
    models = ModelRegistry(
        os.environ,
        config.defaults.provider,
        Catalog(config.aliases, config.models),
        steady_clock.monotonic,
        home.weights,
        vault.value,
        config.defaults.model,
    )
    for name, provider in config.providers.items():
        models.add(name, provider)
    commands = ShellCommands(hidden=(home.path, *database_files(database or home.database_url)), user=os.environ)
    tools = ToolRegistry()
    tools.add_builtin(builtin_tools(commands, vault))
    tools.add_plugins()
    engine_telemetry = None
    if telemetry is not None:
        from treadle.bootstrap.telemetry import EngineTelemetry  # not needed without telemetry

        engine_telemetry = EngineTelemetry(telemetry, home, models, vault, steady_clock)
    return EngineConfig(
        home,
        models,
        tools,
        [],
        vault,
        HomeAgentContext(home, config.house_rules),
        steady_clock,
        ids or TimeOrderedIds(),
        commands,
        database,
        engine_telemetry,
        config.credits.per_dollar,
        share=share,
        time_of_day=clock or SystemClock(),
    )
