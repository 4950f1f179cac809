"""The tools that a request offers, which the client runs itself, and which of them the model may call."""

from collections.abc import Sequence
from typing import Any, Final, Literal, cast

from msgspec import Struct

from treadle.domain.client_tools import ClientTool, check_client_tools
from treadle.domain.tools import ToolChoice, ToolChoiceMode
from treadle.surfaces.http.openai.refusals import InvalidParameterValue

CallKind = Literal["function", "custom", "local_shell"]
"""How a call is written: with arguments in JSON, with a text of any form, or as a command of the shell."""
FREEFORM_TITLE, SHELL_TITLE = "Freeform input", "Local shell"
"""The titles of schemas by which the kind of a tool is known again, when only the journal has it."""
KINDS: Final[dict[str, CallKind]] = {FREEFORM_TITLE: "custom", SHELL_TITLE: "local_shell"}
FREEFORM_SCHEMA: Final[dict[str, Any]] = {
    "title": FREEFORM_TITLE,
    "type": "object",
    "properties": {"input": {"type": "string"}},
    "required": ["input"],
    "additionalProperties": False,
}
LOCAL_SHELL: Final = ClientTool(
    "local_shell",
    "Run a command on the machine of the user.",
    {
        "title": SHELL_TITLE,
        "type": "object",
        "properties": {
            "command": {"type": "array", "items": {"type": "string"}},
            "working_directory": {"type": "string"},
            "timeout_ms": {"type": "integer"},
        },
        "required": ["command"],
        "additionalProperties": False,
    },
)


class OfferedTools(Struct, frozen=True):
    """The tools of a request."""

    tools: tuple[ClientTool, ...] = ()
    choice: ToolChoice | None = None
    ignored: tuple[str, ...] = ()
    """Tools that OpenAI runs itself and Treadle does not have, as names of parameters."""


def read_tools(tools: Any, choice: Any) -> OfferedTools:
    """Return the tools of a request. Raise InvalidParameterValue for those that cannot be offered."""
    found: list[ClientTool] = []
    ignored: dict[str, None] = {}
    for index, tool in enumerate(_as_list(tools, "tools")):
        made = _read_tool(_as_object(tool, f"tools[{index}]"), f"tools[{index}]")
        if isinstance(made, str):
            ignored[f"tools.{made}"] = None
        else:
            found += made
    try:
        check_client_tools(found)
    except ValueError as error:
        raise InvalidParameterValue("tools", f"`tools` cannot be used: {error}.") from None
    mode, names = _read_choice(choice, bool(found))
    named = "" if names is None or len(names) != 1 or mode != "required" else names[0]
    for name in names or ():
        if all(name != tool.name for tool in found):
            raise InvalidParameterValue("tool_choice", f"`tool_choice` names {name[:100]}: `tools` lacks it.")
    if names is not None:
        found = [tool for tool in found if tool.name in names]
    asked = None if mode == "auto" else ToolChoice(mode, named)
    return OfferedTools(tuple(found), asked, tuple(ignored))


def find_kind(tool: ClientTool) -> CallKind:
    """Return how calls of a tool are written."""
    return KINDS.get(tool.schema.get("title", ""), "function")


def describe_tool(tool: ClientTool) -> dict[str, Any]:
    """Return a tool as a response lists it."""
    match find_kind(tool):
        case "custom":
            return {"type": "custom", "name": tool.name, "description": tool.description}
        case "local_shell":
            return {"type": "local_shell"}
        case "function":
            named = {"type": "function", "name": tool.name, "description": tool.description}
            return {**named, "parameters": tool.schema, "strict": False}


def describe_choice(choice: ToolChoice | None) -> Any:
    """Return a tool choice as a response shows it."""
    if choice is None:
        return "auto"
    return {"type": "function", "name": choice.tool} if choice.tool else choice.mode


def _read_tool(tool: dict[str, Any], where: str) -> list[ClientTool] | str:
    """Return the tools that an entry stands for, or its type if OpenAI runs it itself. Chat completions nest a
    tool one level deeper than responses."""
    kind = tool.get("type")
    if not isinstance(kind, str):
        raise InvalidParameterValue(f"{where}.type", "A tool must have a type, such as `function`.")
    if kind == "local_shell":
        return [LOCAL_SHELL]
    if kind == "namespace":
        inner = _as_list(tool.get("tools"), f"{where}.tools")
        made = [_read_tool(_as_object(each, where), f"{where}.tools[{place}]") for place, each in enumerate(inner)]
        return [each for found in made if not isinstance(found, str) for each in found]
    if kind not in ("function", "custom"):
        return kind
    nested = tool.get(kind)
    fields = tool if nested is None else _as_object(nested, f"{where}.{kind}")
    name, description = fields.get("name"), fields.get("description")
    if not isinstance(name, str) or not name:
        raise InvalidParameterValue(f"{where}.name", "A tool must have a name.")
    described = description if isinstance(description, str) else ""
    if kind == "custom":
        return [ClientTool(name, _describe_format(described, fields.get("format")), FREEFORM_SCHEMA)]
    schema = fields.get("parameters")
    if schema is None:
        return [ClientTool(name, described)]
    return [ClientTool(name, described, {"type": "object", **_as_object(schema, f"{where}.parameters")})]


def _describe_format(description: str, format: Any) -> str:
    """Return the description of a tool with the grammar of its input, which not every model can be held to."""
    definition = ""
    if isinstance(format, dict):
        fields = cast("dict[str, Any]", format)
        grammar = fields.get("grammar")
        source = cast("dict[str, Any]", grammar) if isinstance(grammar, dict) else fields
        definition = source.get("definition") or ""
    if not isinstance(definition, str) or not definition:
        return description
    return f"{description}\n\nThe input must match this grammar:\n{definition}".strip()


def _read_choice(choice: Any, has_tools: bool) -> tuple[ToolChoiceMode, Sequence[str] | None]:
    """Return whether tools may be called, and the names of those that may; None: all."""
    if choice is None:
        return "auto", None
    if choice in ("auto", "none", "required"):
        return (choice if has_tools or choice == "none" else "auto"), None
    fields = _as_object(choice, "tool_choice")
    kind = fields.get("type")
    if kind in ("function", "custom"):
        nested = fields.get(kind)
        name = (fields if nested is None else _as_object(nested, f"tool_choice.{kind}")).get("name")
        if isinstance(name, str):
            return "required", [name]
    if kind == "allowed_tools":
        allowed = _as_object(fields.get("allowed_tools", fields), "tool_choice.allowed_tools")
        names = [_read_name(each) for each in _as_list(allowed.get("tools"), "tool_choice.tools")]
        mode = allowed.get("mode", "auto")
        if mode in ("auto", "required"):
            return mode, [name for name in names if name]
    raise InvalidParameterValue(
        "tool_choice",
        "`tool_choice` must be `auto`, `none`, `required`, `allowed_tools`, or name a function or custom tool.",
    )


def _read_name(tool: Any) -> str:
    """Return the name of an allowed tool, or "" for a tool that OpenAI runs itself."""
    fields = _as_object(tool, "tool_choice.tools")
    nested = fields.get("function")
    name = (fields if nested is None else _as_object(nested, "tool_choice.tools")).get("name")
    return name if isinstance(name, str) else ""


def _as_list(value: Any, where: str) -> list[Any]:
    if value is None:
        return []
    if not isinstance(value, list):
        raise InvalidParameterValue(where, f"`{where}` must be a list.")
    return cast("list[Any]", value)


def _as_object(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise InvalidParameterValue(where, f"`{where}` must be an object.")
    return cast("dict[str, Any]", value)
