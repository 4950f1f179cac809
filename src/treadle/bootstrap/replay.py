"""Read access to a database with the standard tools, to replay recorded runs."""

import os
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, closing

from treadle.bootstrap.offline_service import open_service_readonly
from treadle.config.database_url import list_database_files
from treadle.config.home import Home
from treadle.operations.service import LocalService
from treadle.sandbox.commands import ShellCommands
from treadle.tools.builtin import builtin_tools
from treadle.tools.toolbox import ToolRegistry
from treadle.vault.vault import HomeVault


@asynccontextmanager
async def open_service_with_tools_readonly(home: Home) -> AsyncGenerator[LocalService, None]:
    """Open a database for reading, with the tools of an engine.

    The tools declare their arguments and what rules look at; none of them runs."""
    hidden = (home.path, *list_database_files(home.database_url))
    with (
        closing(HomeVault(home.path, os.environ)) as vault,
        closing(ShellCommands(hidden=hidden, user=os.environ)) as shell,
    ):
        tools = ToolRegistry()
        tools.add_builtin(builtin_tools(shell, vault))
        tools.add_plugins()
        async with open_service_readonly(home=home, tools=tools, vault=vault) as service:
            yield service
