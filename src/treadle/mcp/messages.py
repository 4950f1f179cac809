"""Limits on the messages of MCP servers, applied before the SDK validates them.

This module imports the SDK. Import it only where a server is used."""

import logging
import re
from typing import Any, cast

import mcp_types as types
import msgspec
from mcp.shared.message import SessionMessage

from treadle.domain.limits import (
    MAX_JSON_DEPTH,
    MAX_MCP_BLOCKS,
    MAX_MCP_TEXT_CHARACTERS,
    MAX_MCP_TOOL_BYTES,
    MAX_MCP_TOOLS,
    MAX_MCP_UNASKED_MESSAGES,
)

UNREADABLE = f"its answer cannot be read: it is not valid, or nested more than {MAX_JSON_DEPTH} levels deep"
"""Description of an answer that the SDK cannot parse."""
_ID = re.compile(rb'"id"\s*:\s*(?:(\d{1,18})(?=[\s,}])|"([^"\\]{1,100})")')
_HEAD_BYTES = 4096
log = logging.getLogger("treadle.mcp")


class ServerFault(Exception):
    """The server broke the rules and is stopped. The message says how."""


class MessageLimits:
    """Counts and cuts the messages of one connection."""

    def __init__(self) -> None:
        self._unasked = 0

    def apply(self, message: SessionMessage) -> SessionMessage:
        """Return a message within the limits. Raise ServerFault if the server floods the connection."""
        found = message.message
        if isinstance(found, types.JSONRPCResponse):
            self._unasked = 0
            return self._limit_response(message, found)
        if isinstance(found, types.JSONRPCError):
            self._unasked = 0
            found.error.message = cut(found.error.message)
            return message
        self._unasked += 1
        if self._unasked > MAX_MCP_UNASKED_MESSAGES:
            raise ServerFault("it floods the connection with messages that were not asked for")
        return message

    def _limit_response(self, message: SessionMessage, response: types.JSONRPCResponse) -> SessionMessage:
        result: dict[str, Any] = response.result
        if is_value_too_deep({key: value for key, value in result.items() if key != "tools"}):
            return SessionMessage(make_error(response.id))
        content: Any = result.get("content")
        if isinstance(content, list):
            result["content"] = _limit_blocks(cast("list[Any]", content))
        tools: Any = result.get("tools")
        if isinstance(tools, list):
            result["tools"] = [tool for tool in cast("list[Any]", tools)[: MAX_MCP_TOOLS + 1] if _is_usable(tool)]
        return message


def make_error(request: types.RequestId) -> types.JSONRPCError:
    """Return the error with which a call ends whose answer cannot be read."""
    return types.JSONRPCError(
        jsonrpc="2.0", id=request, error=types.ErrorData(code=types.PARSE_ERROR, message=UNREADABLE)
    )


def find_answered_request(line: bytes) -> types.RequestId | None:
    """Return the ID of the request that an unreadable line answers, or None if it is not an answer.

    The ID is searched at both ends: what lies between them is the part that is too large or too deep."""
    if b'"jsonrpc"' not in line[:_HEAD_BYTES] and b'"jsonrpc"' not in line[-_HEAD_BYTES:]:
        return None
    found = _ID.search(line[:_HEAD_BYTES]) or _ID.search(line[-_HEAD_BYTES:])
    if found is None:
        return None
    return int(found[1]) if found[1] is not None else found[2].decode("utf-8", "replace")


def is_value_too_deep(value: Any, levels: int = MAX_JSON_DEPTH) -> bool:
    """Return whether a decoded value is nested deeper than this."""
    layer: list[Any] = [value]
    while layer:
        if levels < 0:
            return True
        inner: list[Any] = []
        for each in layer:
            if isinstance(each, dict):
                inner += cast("dict[str, Any]", each).values()
            elif isinstance(each, list):
                inner += cast("list[Any]", each)
        layer = [each for each in inner if isinstance(each, dict | list)]
        levels -= 1
    return False


def cut(text: str, characters: int = MAX_MCP_TEXT_CHARACTERS) -> str:
    """Return the text, cut to this length."""
    return text if len(text) <= characters else f"{text[: characters - 1]}…"


def _limit_blocks(content: list[Any]) -> list[Any]:
    if len(content) <= MAX_MCP_BLOCKS:
        return content
    left_out = f"[{len(content) - MAX_MCP_BLOCKS} more content blocks are left out]"
    return [*content[:MAX_MCP_BLOCKS], {"type": "text", "text": left_out}]


def _is_usable(tool: Any) -> bool:
    """Return whether a listed tool is within the limits. Others are left out."""
    if not is_value_too_deep(tool) and len(msgspec.json.encode(tool)) <= MAX_MCP_TOOL_BYTES:
        return True
    name = cut(str(cast("dict[str, Any]", tool).get("name")), 100) if isinstance(tool, dict) else "?"
    log.warning("the tool %r of an MCP server is left out: its declaration is too large or nested too deeply", name)
    return False
