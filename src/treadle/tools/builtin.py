"""The built-in tools of every engine. A user-defined tool of the same name replaces a built-in one."""

from collections.abc import Iterator

from treadle.ports.sandbox import Commands
from treadle.ports.tool import Tool
from treadle.ports.vault import Vault
from treadle.tools.bash import Bash
from treadle.tools.clarify import clarify
from treadle.tools.delegation import agent_send, agent_spawn, invoke_agent
from treadle.tools.files import make_file_tools, make_patch_tool
from treadle.tools.hidden_tools import CallTool, find_tools
from treadle.tools.load_skill import load_skill
from treadle.tools.memory import (
    check_fact,
    check_note,
    check_query,
    journal_write,
    memory_save,
    memory_search,
)
from treadle.tools.recall import recall
from treadle.tools.toolset import CheckedTool, Toolset
from treadle.tools.update_plan import update_plan
from treadle.tools.vault_get import make_vault_get
from treadle.tools.web import make_web_fetch

SMALL_SET = ("read_file", "write_file", "edit_file", "glob", "bash")
"""The set `@small`, for models on the user's own machine: few tools with short descriptions."""


INTERNAL_TOOLS: tuple[Tool, ...] = (find_tools, CallTool(), make_patch_tool())
"""Tools that the engine adds to a run. No glob of an allowlist selects them."""


def builtin_tools(commands: Commands, vault: Vault) -> Iterator[Toolset | Tool]:
    file_tools, bash = make_file_tools(), Bash(commands)
    yield file_tools
    yield bash
    yield Toolset("small", [tool for tool in (*file_tools, bash) if tool.spec.name in SMALL_SET])
    yield make_web_fetch()
    yield recall
    yield CheckedTool(memory_search, lambda arguments: check_query(arguments.query))
    yield CheckedTool(memory_save, lambda arguments: check_fact(arguments.text))
    yield CheckedTool(journal_write, lambda arguments: check_note(arguments.text))
    yield load_skill
    yield clarify
    yield update_plan
    yield agent_spawn
    yield agent_send
    yield invoke_agent
    yield make_vault_get(vault)
