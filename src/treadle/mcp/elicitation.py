"""Elicitation: a question of an MCP server during a call becomes a question to the user of the run.

This module imports the SDK. Import it only where a server is used."""

import json
from itertools import islice
from typing import Any, cast

import mcp_types as types

from treadle.domain.inert_text import make_inert
from treadle.domain.limits import MAX_MCP_FIELDS, MAX_MCP_TEXT_CHARACTERS
from treadle.ports.tool import ToolContext


async def ask_person(server: str, params: types.ElicitRequestParams, context: ToolContext) -> types.ElicitResult:
    """Ask, and return the answer in the form that the server requested. Without an answer, decline."""
    message = make_inert(params.message[:MAX_MCP_TEXT_CHARACTERS])[:MAX_MCP_TEXT_CHARACTERS]
    lead = f"The MCP server `{server}` asks: {message}"
    if isinstance(params, types.ElicitRequestURLParams):
        answer = await context.ask(
            f"{lead} (Open {make_inert(params.url)[:MAX_MCP_TEXT_CHARACTERS]})", ("done", "decline")
        )
        return types.ElicitResult(action="accept" if answer == "done" else "decline")
    schema = _to_dict(params.requested_schema)
    fields: dict[str, Any] = schema.get("properties") or {}
    if len(fields) > MAX_MCP_FIELDS:
        return types.ElicitResult(action="decline")
    if not fields:
        answer = await context.ask(lead, ("accept", "decline"))
        return types.ElicitResult(action="accept" if answer == "accept" else "decline", content={})
    if len(fields) == 1:
        [(name, field)] = fields.items()
        answer = await context.ask(f"{lead} ({_describe(name, field)})", _options(field))
        return _make_result({name: answer} if answer is not None else None, fields)
    wanted = "; ".join(_describe(name, field) for name, field in fields.items())
    answer = await context.ask(f"{lead} Answer as JSON with these fields: {wanted}.", ())
    return _make_result(_decode(answer), fields)


def _to_dict(schema: Any) -> dict[str, Any]:
    if isinstance(schema, dict):
        return cast("dict[str, Any]", schema)
    return schema.model_dump(by_alias=True, exclude_none=True)


def _describe(name: str, field: dict[str, Any]) -> str:
    kind = field.get("type", "text")
    choices = _options(field)
    about = make_inert(str(field.get("description") or field.get("title") or ""))[:200]
    detail = ", ".join(part for part in (str(kind), " or ".join(choices), about) if part)
    return f"{make_inert(name)[:100]}: {detail}"


def _options(field: dict[str, Any]) -> tuple[str, ...]:
    if field.get("type") == "boolean":
        return ("yes", "no")
    values = field.get("enum") or [each.get("const") for each in field.get("oneOf") or ()]
    return tuple(make_inert(str(value)[:200]) for value in islice(values, MAX_MCP_FIELDS))


def _decode(answer: str | None) -> dict[str, Any] | None:
    try:
        decoded: Any = json.loads(answer or "")
    except ValueError:
        return None
    return cast("dict[str, Any]", decoded) if isinstance(decoded, dict) else None


def _make_result(values: dict[str, Any] | None, fields: dict[str, Any]) -> types.ElicitResult:
    if values is None:
        return types.ElicitResult(action="decline")
    try:
        content = {name: _convert(value, fields[name]) for name, value in values.items() if name in fields}
    except (ValueError, TypeError):
        return types.ElicitResult(action="decline")
    defaults = {name: field["default"] for name, field in fields.items() if "default" in field}
    return types.ElicitResult(action="accept", content={**defaults, **content})


def _convert(value: Any, field: dict[str, Any]) -> Any:
    """Return the text that a person typed as the type that the server requested."""
    if not isinstance(value, str):
        return value
    match field.get("type"):
        case "boolean":
            return value.strip().lower() in ("yes", "true", "y", "1")
        case "integer":
            return int(value)
        case "number":
            return float(value)
        case "array":
            return [part.strip() for part in value.split(",")]
        case _:
            return value
