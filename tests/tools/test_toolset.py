"""Toolsets: selected, renamed and wrapped as one."""

from typing import Any

import pytest

import treadle
from treadle.domain.errors import UsageError
from treadle.domain.ids import RunId, SessionId
from treadle.domain.tools import ToolSpec
from treadle.ports.tool import Observation, Tool, ToolContext
from treadle.tools.toolbox import ToolRegistry
from treadle.tools.toolset import Proceed, Toolset

CONTEXT = ToolContext(RunId("r"), SessionId("s"), "c", "k", print)


@treadle.tool(effect="read")
async def read_note(name: str) -> str:
    """Read a note."""
    return f"note {name}"


@treadle.tool(effect="write")
async def write_note(name: str) -> str:
    """Write a note."""
    return f"wrote {name}"


NOTES = Toolset("notes", [read_note, write_note])


async def run(tool: Tool, name: str = "a") -> Any:
    return await tool.run(tool.parse(f'{{"name": "{name}"}}'), CONTEXT)


async def loud(spec: ToolSpec, arguments: Any, context: ToolContext, proceed: Proceed) -> str:
    return f"{spec.name}: {str(await proceed(arguments)).upper()}"


async def twice(spec: ToolSpec, arguments: Any, context: ToolContext, proceed: Proceed) -> str | Observation:
    return f"{await proceed(arguments)} {await proceed(arguments)}"


def test_tools_of_a_set_are_selected_by_pattern() -> None:
    assert NOTES.only("read_*").names == ("read_note",)
    assert NOTES.without("read_*").names == ("write_note",)
    assert NOTES.names == ("read_note", "write_note"), "the old one stays"


async def test_the_tools_of_a_set_can_be_prefixed() -> None:
    renamed = NOTES.prefixed("old_")
    assert renamed.names == ("old_read_note", "old_write_note")
    assert [tool.spec.effect for tool in renamed] == ["read", "write"]
    assert await run(next(iter(renamed))) == "note a"


async def test_wrappers_compose_with_the_first_outermost() -> None:
    tool = next(iter(NOTES.wrapped(loud, twice)))
    assert await run(tool) == "read_note: NOTE A NOTE A"
    tool = next(iter(NOTES.wrapped(twice, loud)))
    assert await run(tool) == "read_note: NOTE A read_note: NOTE A"
    assert tool.spec is read_note.spec
    assert tool.subjects(tool.parse('{"name": "x"}')).texts == ("x",)


def test_a_set_has_a_name_in_allowlists() -> None:
    registry = ToolRegistry()
    registry.add_set(NOTES)
    assert [tool.spec.name for tool in registry.select(["@notes"])] == ["read_note", "write_note"]
    with pytest.raises(UsageError, match="did you mean `@notes`"):
        registry.select(["@note"])
    registry.add_set(NOTES)
    with pytest.raises(UsageError, match="two sets of tools are called `notes`"):
        registry.add_set(NOTES.only("read_*"))


def test_a_user_defined_tool_replaces_a_built_in_one() -> None:
    registry = ToolRegistry()
    registry.add_builtin([NOTES.prefixed(""), read_note])
    mine = next(iter(NOTES.wrapped(loud)))
    registry.add(mine)
    assert registry.find("read_note") is mine
    with pytest.raises(UsageError, match="two tools are called"):
        registry.add(next(iter(NOTES.wrapped(twice))))


def test_an_agent_accepts_a_set_as_tools() -> None:
    agent = treadle.Agent(name="a", model="x/y", tools=[NOTES, "bash"])
    assert agent.spec.tools == ("read_note", "write_note", "bash")
    assert len(agent.tools) == 2
