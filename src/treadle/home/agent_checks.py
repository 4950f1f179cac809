"""What a run of an agent would refuse, found before there is a run. No engine is opened."""

import os
from collections.abc import Iterable
from contextlib import closing
from fnmatch import fnmatchcase

from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import UsageError
from treadle.domain.suggestions import find_closest
from treadle.home.mcp_entries import list_entries
from treadle.home.model_registry import make_model_registry
from treadle.home.tool_names import list_known_tools
from treadle.mcp.names import find_server_name, make_tool_name
from treadle.mcp.pins import explain_refusal
from treadle.vault.vault import HomeVault


def list_home_tools(home: Home) -> list[str]:
    """Return the names of the built-in tools, of those of plugins and of those of approved MCP servers."""
    approved = [entry for entry in list_entries(home) if entry.state == "approved"]
    return [
        *(name for spec in list_known_tools().values() for name in spec.names),
        *(make_tool_name(entry.name, str(tool["name"])) for entry in approved for tool in entry.tools),
    ]


def find_unknown_tools(home: Home, names: Iterable[str]) -> list[str]:
    """Return a sentence for each name or glob that no tool of the home matches."""
    known = list_home_tools(home)
    found: list[str] = []
    for name in names:
        if not name.startswith("@") and not any(fnmatchcase(each, name) for each in known):
            near = find_closest(name, known)
            meant = f"Did you mean `{near}`?" if near else f"Known: {', '.join(sorted(known))}."
            found.append(_explain_server(home, name) or f"no tool is called `{name}`. {meant}")
    return found


def _explain_server(home: Home, name: str) -> str:
    """Return why the tools of an MCP server cannot be used, or an empty text if the name is of no server."""
    server = find_server_name(name)
    entry = next((entry for entry in list_entries(home) if entry.name == server), None)
    return "" if entry is None else explain_refusal(entry.settings, entry.pin, entry.advice)


async def find_unusable_models(home: Home, spec: AgentSpec) -> list[str]:
    """Return why models of an agent cannot be used, one sentence each."""
    with closing(HomeVault(home.path, os.environ)) as vault:
        models = make_model_registry(home, home.config(), vault.value)
        problems: dict[str, None] = {}
        try:
            for name in (spec.model, *spec.fallbacks):
                try:
                    models.resolve(name, spec.provider)
                except UsageError as error:
                    problems[str(error)] = None
        finally:
            await models.close()
    return list(problems)
