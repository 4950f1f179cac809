"""The tools that an engine of this home would have. No engine is opened."""

import os
from collections.abc import Mapping
from functools import cache

from treadle.domain.tools import ToolSpec
from treadle.domain.web_search import WebSearchSettings
from treadle.engine.null_ports import NoVault
from treadle.sandbox.commands import ShellCommands
from treadle.tools.builtin import builtin_tools
from treadle.tools.toolbox import ToolRegistry
from treadle.tools.web.search import make_web_search
from treadle.tools.web.search_engines import HttpSearchEngine


@cache
def list_known_tools() -> Mapping[str, ToolSpec]:
    """Return the declarations of the built-in tools and of installed plugins, by name.

    Tools that a program adds to its own engine are not included. Raise UsageError for a plugin that cannot be
    loaded, as an engine would."""
    tools = ToolRegistry()
    tools.add_builtin(builtin_tools(ShellCommands(user=os.environ), NoVault()))
    tools.add_builtin([make_web_search(HttpSearchEngine(WebSearchSettings("brave"), lambda name: None))])
    tools.add_plugins()
    return {tool.spec.name: tool.spec for tool in tools.select(["*"])}
