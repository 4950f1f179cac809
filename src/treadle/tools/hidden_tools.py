"""`find_tools` and `call_tool`: the tools of a run that are too many to show."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from treadle.domain.tools import ToolSpec
from treadle.ports.tool import InvalidArguments, Observation, Subjects, ToolContext
from treadle.tools.function import tool

MAX_FOUND = 10


@tool(effect="none", repeatable=True, needs=("tools",))
async def find_tools(
    query: Annotated[str, Meta(description="What the tool should do, in a few words, or its name.")],
    context: ToolContext,
    limit: Annotated[int, Meta(description="Maximum number of tools.", ge=1, le=MAX_FOUND)] = 5,
) -> str:
    """Search for more tools by what they do. Returns their names, descriptions and argument schemas. Call a tool
    that you found with `call_tool`."""
    found = context.find_tools(query, limit)
    if not found:
        return "No tool matches. Try other words."
    return "\n".join(
        msgspec.json.encode({"name": spec.name, "description": spec.description, "arguments": spec.schema}).decode()
        for spec in found
    )


class CallTool:
    """Implements `ports.tool.Tool`. It never runs: a call that names a hidden tool is a call of that tool."""

    spec = ToolSpec(
        name="call_tool",
        description="Call a tool that `find_tools` returned.",
        schema={
            "type": "object",
            "properties": {
                "name": {"type": "string", "description": "The name of the tool."},
                "arguments": {"type": "object", "description": "Its arguments, as its schema says."},
            },
            "required": ["name", "arguments"],
        },
        forwards=True,
    )

    def parse(self, arguments: str) -> Any:
        raise InvalidArguments(
            "`name` must be a tool that `find_tools` returned, and `arguments` a JSON object. Search for it first."
        )

    def subjects(self, arguments: Any) -> Subjects:
        return Subjects(())

    async def run(self, arguments: Any, context: ToolContext) -> Observation:
        raise AssertionError("a call that names a hidden tool is a call of that tool")
