"""`load_skill`: returns the instructions of a skill when they are needed."""

from treadle.ports.tool import ToolContext, ToolError
from treadle.tools.function import tool


@tool(effect="read", repeatable=True, needs=("skills",))
def load_skill(name: str, context: ToolContext, file: str | None = None) -> str:
    """Load the instructions of a skill, or one of the files that belong to it.

    Load a skill before you start a task that it is for. Its instructions may name files such as
    references/format.md: load one with `file` when you need it.

    Args:
        name: The name of the skill, as the list of skills gives it.
        file: The path of one of the skill's files, as the skill lists it; without it, the instructions.
    """
    try:
        return context.load_skill(name, file)
    except LookupError as error:
        raise ToolError(str(error)) from None
