"""Tools that the sender of a message brings and runs itself. A run waits for the result of each call."""

import re
from collections.abc import Iterable, Sequence

import msgspec

from treadle.domain.inert_text import make_inert
from treadle.domain.json_text import is_too_deep
from treadle.domain.limits import MAX_CLIENT_TOOL_BYTES, MAX_CLIENT_TOOLS, MAX_JSON_DEPTH
from treadle.domain.schemas import make_inert_schema
from treadle.domain.tools import ClientTool, ToolSpec

PREFIX = "client__"
"""The model sees a client's tool with this prefix if the agent has a tool of the same name."""
MAX_NAME_CHARACTERS = 64
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


def check_client_tools(tools: Sequence[ClientTool]) -> None:
    """Raise ValueError for tools that no run can have."""
    if len(tools) > MAX_CLIENT_TOOLS:
        raise ValueError(f"there are {len(tools)} of them, and at most {MAX_CLIENT_TOOLS} are accepted")
    names: set[str] = set()
    for tool in tools:
        if not _NAME.fullmatch(tool.name):
            raise ValueError(f"the name `{make_inert(tool.name)[:80]}` must be 1 to 64 letters, digits, - or _")
        if tool.name in names:
            raise ValueError(f"two of them are called `{tool.name}`")
        names.add(tool.name)
        if tool.schema.get("type", "object") != "object":
            raise ValueError(f"the schema of `{tool.name}` must be that of an object")
    try:
        encoded = msgspec.json.encode(tools)
        is_deep = is_too_deep(encoded.decode(), MAX_JSON_DEPTH)
    except (TypeError, ValueError, RecursionError) as error:
        raise ValueError(f"a schema is not JSON ({error})") from None
    if len(encoded) > MAX_CLIENT_TOOL_BYTES:
        raise ValueError(
            f"they have {len(encoded)} bytes in JSON, and at most {MAX_CLIENT_TOOL_BYTES} are accepted"
        )
    if is_deep:
        raise ValueError(f"a schema is nested more than {MAX_JSON_DEPTH} levels deep")


def make_client_specs(tools: Sequence[ClientTool], own: Iterable[ToolSpec]) -> tuple[ToolSpec, ...]:
    """Return the declarations of a client's tools, which join the agent's own. Whatever a client writes is shown to
    the model as it is, with hidden characters made visible."""
    taken = {name for spec in own for name in spec.names}
    taken.update(tool.name for tool in tools if tool.name not in taken)
    specs: list[ToolSpec] = []
    for tool in tools:
        name = tool.name if all(tool.name not in spec.names for spec in own) else _make_free_name(tool.name, taken)
        taken.add(name)
        specs.append(
            ToolSpec(
                name=name,
                description=make_inert(tool.description),
                schema=make_inert_schema(tool.schema),
                parallel=True,
                repeatable=True,
                timeout=0,
                client=tool.name,
            )
        )
    return tuple(specs)


def _make_free_name(name: str, taken: set[str]) -> str:
    """Return the name with the prefix, cut to what providers accept, and with a number if it is taken."""
    free, number = f"{PREFIX}{name}"[:MAX_NAME_CHARACTERS], 2
    while free in taken:
        ending = f"_{number}"
        free, number = f"{PREFIX}{name}"[: MAX_NAME_CHARACTERS - len(ending)] + ending, number + 1
    return free
