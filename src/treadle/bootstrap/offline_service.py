"""The service on a database without an engine: for commands that read, or that change what no run executes.

Models and tools are loaded when they are first used: a command that lists runs needs neither."""

import os
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager, closing
from functools import cache, cached_property
from typing import TYPE_CHECKING

from treadle.bootstrap.databases import open_stores_readonly
from treadle.bootstrap.stores import Stores
from treadle.config.database_url import list_database_files
from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.engine.event_hub import EventHub
from treadle.engine.null_ports import NoVault
from treadle.operations.service import LocalService
from treadle.ports.clock import Clock
from treadle.ports.model import Models, Resolved
from treadle.ports.tool import Tool, Toolbox
from treadle.ports.vault import Vault
from treadle.system.clock import SystemClock, TimeOrderedIds
from treadle.vault.vault import HomeVault

if TYPE_CHECKING:
    from treadle.ports.file_versions import FileVersions


@asynccontextmanager
async def open_service_readonly(
    database: str | None = None,
    *,
    home: Home | None = None,
    tools: Toolbox | None = None,
    vault: Vault | None = None,
) -> AsyncGenerator[LocalService, None]:
    """Open a database for reading. Nothing is executed, and the owner of the database, if there is one,
    continues."""
    url = database or (home or Home.from_environment(os.environ)).database_url
    async with open_stores_readonly(url) as stores:
        yield make_offline_service(stores, vault or NoVault(), tools)


@asynccontextmanager
async def open_service_with_tools_readonly(home: Home) -> AsyncGenerator[LocalService, None]:
    """Open a database for reading, with the tools of an engine.

    The tools declare their arguments and what rules look at; none of them runs."""
    hidden = (home.path, *list_database_files(home.database_url))
    from treadle.sandbox.commands import ShellCommands
    from treadle.tools.builtin import builtin_tools
    from treadle.tools.toolbox import ToolRegistry

    with (
        closing(HomeVault(home.path, os.environ)) as vault,
        closing(ShellCommands(hidden=hidden, user=os.environ)) as shell,
    ):
        tools = ToolRegistry()
        tools.add_builtin(builtin_tools(shell, vault))
        tools.add_plugins()
        async with open_service_readonly(home=home, tools=tools, vault=vault) as service:
            yield service


def make_offline_service(
    stores: Stores, vault: Vault, tools: Toolbox | None = None, make_models: Callable[[], Models] | None = None
) -> LocalService:
    """Return the service on a database that no engine works on. Without `make_models` it knows the built-in models
    only."""
    clock, ids = SystemClock(), TimeOrderedIds()
    return LocalService(
        stores.journal,
        stores.runs,
        stores.approvals,
        stores.sessions,
        EventHub(clock, ids, lambda _run, _at: None),
        _LazyModels(make_models or _make_builtin_models),
        tools or _LazyTools(),
        vault,
        clock,
        ids,
        stores.books,
        results=stores.results,
    )


def make_lazy_file_versions(home: Home, database: str, clock: Clock) -> "Callable[[], FileVersions]":
    """Return what makes the versions of files that runs changed, when they are first used."""

    @cache
    def make() -> "FileVersions":
        from treadle.file_versions.home_store import HomeFileVersions

        return HomeFileVersions(home.file_versions, (home.path, *list_database_files(database)), clock)

    return make


class _LazyModels:
    """Implements `ports.model.Models` with models that are made when one is first looked up."""

    def __init__(self, make: Callable[[], Models]) -> None:
        self._make = make

    @cached_property
    def _models(self) -> Models:
        return self._make()

    def resolve(self, model: str, provider: str | None) -> Resolved:
        return self._models.resolve(model, provider)


def _make_builtin_models() -> Models:
    from treadle.models.registry import ModelRegistry

    return ModelRegistry({})


def make_home_models(home: Home, vault: HomeVault) -> Callable[[], Models]:
    """Return what makes the models of a home."""

    def make() -> Models:
        from treadle.home.model_registry import make_model_registry

        return make_model_registry(home, home.config(), vault.value)

    return make


class _LazyTools:
    """Implements `ports.tool.Toolbox` with the built-in tools."""

    @cached_property
    def _tools(self) -> Toolbox:
        from treadle.tools.toolbox import ToolRegistry

        return ToolRegistry()

    def find(self, name: str, agent: AgentSpec | None = None) -> Tool | None:
        return self._tools.find(name, agent)

    def select(self, allowlist: Sequence[str], agent: AgentSpec | None = None) -> tuple[Tool, ...]:
        return self._tools.select(allowlist, agent)
