"""Callers on the database of a home without an engine: read-only, or as its owner."""

import os
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING

from treadle.bootstrap.databases import open_home_readonly, open_stores_exclusively, open_stores_readonly
from treadle.bootstrap.offline_service import make_home_models, make_lazy_file_versions, make_offline_service
from treadle.bootstrap.stores import Stores, make_suites
from treadle.config.agent_registry import HomeAgents
from treadle.config.database_url import is_in_memory
from treadle.config.home import Home
from treadle.domain.errors import StoreOwned, UsageError
from treadle.home.mcp_status import HomeMcpStatus
from treadle.operations.automation import Automation
from treadle.operations.context import Context
from treadle.operations.operation import LocalCaller
from treadle.operations.retention import RetentionService, make_file_sweep
from treadle.operations.sign_in_service import SignInService
from treadle.operations.token_service import TokenService
from treadle.system.clock import SystemClock, TimeOrderedIds
from treadle.vault.vault import HomeVault

if TYPE_CHECKING:
    from treadle.operations.agent_version_service import AgentVersionService
    from treadle.operations.channel_manager import ChannelManager
    from treadle.ports.model import ModelRequest


@asynccontextmanager
async def open_readonly_caller(home: Home | None = None) -> AsyncGenerator[LocalCaller, None]:
    """Open the database of a home for reading. Its owner, if it has one, continues."""
    home = home or Home.from_environment(os.environ).require_folder()
    async with AsyncExitStack() as opened:
        stores = await opened.enter_async_context(open_stores_readonly(home.database_url))
        yield LocalCaller(_context(home, stores, opened))


@asynccontextmanager
async def open_persistent_readonly_caller(home: Home) -> AsyncGenerator[LocalCaller, None]:
    """Open the database of a home for reading. Raise UsageError if it exists only in memory."""
    async with AsyncExitStack() as opened:
        stores = await opened.enter_async_context(open_home_readonly(home))
        yield LocalCaller(_context(home, stores, opened))


@asynccontextmanager
async def open_owning_caller(
    home: Home, unchanged: str = "Nothing was changed."
) -> AsyncGenerator[LocalCaller, None]:
    """Own the database of a home and change it. Raise StoreOwned, starting with `unchanged`, while another process
    owns it."""
    async with AsyncExitStack() as opened:
        stores = await opened.enter_async_context(open_stores_exclusively(home, unchanged))
        yield LocalCaller(_context(home, stores, opened, writable=True))


@asynccontextmanager
async def open_readonly_memory_caller(home: Home) -> AsyncGenerator[LocalCaller, None]:
    """Open the memories of a home for reading."""
    async with AsyncExitStack() as opened:
        stores = await opened.enter_async_context(open_stores_readonly(home.database_url))
        yield await _with_memories(home, stores, opened)


@asynccontextmanager
async def open_owning_memory_caller(home: Home) -> AsyncGenerator[LocalCaller, None]:
    """Own the database of a home and change its memories. Raise UsageError for a database in memory."""
    if is_in_memory(home.database_url):
        raise UsageError(
            f"The database {home.database_url} is lost when this command ends, so nothing can be remembered in it. "
            "Set TREADLE_DATABASE_URL to sqlite:///PATH, or leave it out for the database of the home."
        )
    async with AsyncExitStack() as opened:
        try:
            stores = await opened.enter_async_context(open_stores_exclusively(home, "Nothing was changed."))
        except StoreOwned as error:
            raise StoreOwned(
                f"{error} Until then `treadle memory list`, `search` and `export` show its memories, and "
                "agents can save memories with the tool memory_save.",
                error.socket,
                error.owner,
                error.since,
                error.pid,
            ) from None
        yield await _with_memories(home, stores, opened)


def _context(home: Home, stores: Stores, opened: AsyncExitStack, *, writable: bool = False) -> Context:
    clock, ids = SystemClock(), TimeOrderedIds()
    vault = HomeVault(home.path, os.environ)
    opened.callback(vault.close)
    access = TokenService(stores.tokens, clock, ids)
    agents = HomeAgents(home)
    files = make_lazy_file_versions(home, home.database_url, clock)
    return Context(
        service=make_offline_service(stores, vault, make_models=make_home_models(home, vault)),
        sessions=stores.sessions,
        vault=vault,
        access=access,
        sign_ins=SignInService(stores.sign_ins, access, clock, ids),
        retention=RetentionService(stores.deletions, clock, sweep_files=make_file_sweep(files, stores.runs)),
        file_versions=files,
        automation=_automation(home, stores, vault),
        agents=agents,
        evaluations=stores.evaluations,
        suites=lambda: make_suites(home.path),
        versions=_versions(stores, agents, vault, writable),
        mcp=HomeMcpStatus(home),
        channels=_channels(home, stores, vault),
        now=clock.now,
        overview=stores.overview,
        encode_request=_encode_request,
    )


def _encode_request(mode: str, request: "ModelRequest") -> bytes:
    from treadle.bootstrap.engine import encode_request  # imports the engine, which most commands do not need

    return encode_request(mode, request)


def _versions(
    stores: Stores, agents: HomeAgents, vault: HomeVault, writable: bool
) -> "Callable[[], AgentVersionService]":
    @cache
    def make() -> "AgentVersionService":
        from treadle.operations.agent_version_service import AgentVersionService

        return AgentVersionService(stores.definitions(), agents, vault, SystemClock(), records=writable)

    return make


def _automation(home: Home, stores: Stores, vault: HomeVault) -> Callable[[], Automation]:
    @cache
    def make() -> Automation:
        from treadle.bootstrap.automation import make_offline_automation

        return make_offline_automation(home, stores, vault)

    return make


def _channels(home: Home, stores: Stores, vault: HomeVault) -> "Callable[[], ChannelManager]":
    @cache
    def make() -> "ChannelManager":
        from treadle.bootstrap.channels import make_offline_channels

        return make_offline_channels(home, stores, vault)

    return make


async def _with_memories(home: Home, stores: Stores, opened: AsyncExitStack) -> LocalCaller:
    from treadle.bootstrap.memory import open_memory_service

    context = _context(home, stores, opened)
    memory = await opened.enter_async_context(open_memory_service(home, stores))
    return LocalCaller(replace(context, memory=memory))
