"""Results of MCP tools as observations: text, structured content, images and resources.

This module imports the SDK. Import it only where a server is used."""

import json
from base64 import b64decode
from typing import Any

import mcp_types as types

from treadle.domain.inert_text import make_inert
from treadle.domain.limits import MAX_MCP_IMAGE_BYTES, MAX_MCP_IMAGES
from treadle.domain.mcp_servers import McpPrompt, McpPromptArgument, McpPromptMessage
from treadle.domain.messages import Image
from treadle.ports.tool import Observation

IMAGE_TYPES = frozenset(("image/png", "image/jpeg", "image/gif", "image/webp"))
"""The types that every provider with vision accepts."""
EMPTY = "(The tool returned nothing.)"


def make_observation(result: types.CallToolResult) -> Observation:
    """Return the result of a call for a model."""
    parts: list[str] = []
    images: list[Image] = []
    for block in result.content:
        text = _describe_block(block, images)
        if text:
            parts.append(text)
    structured = result.structured_content
    if structured is not None and not _repeats(structured, parts):
        parts.append(json.dumps(structured, ensure_ascii=False))
    return Observation("\n".join(parts) or EMPTY, is_error=result.is_error, images=tuple(images))


def make_prompt(server: str, prompt: types.Prompt) -> McpPrompt:
    """Return a prompt as a user is shown it. Invisible characters are made visible."""
    arguments = tuple(
        McpPromptArgument(each.name, make_inert(each.description or ""), each.required is True)
        for each in prompt.arguments or ()
    )
    return McpPrompt(server, prompt.name, make_inert(prompt.description or prompt.title or ""), arguments)


def make_prompt_message(result: types.GetPromptResult) -> McpPromptMessage:
    """Return the messages of a prompt as one. Those in the name of the model are quoted as such."""
    images: list[Image] = []
    parts = [
        f"{'' if message.role == 'user' else f'{message.role}: '}{_describe_block(message.content, images)}"
        for message in result.messages
    ]
    return McpPromptMessage(make_inert("\n\n".join(parts)), tuple(images))


def _describe_block(block: Any, images: list[Image]) -> str:
    match block:
        case types.TextContent(text=text):
            return text
        case types.ImageContent(data=data, mime_type=kind):
            return _describe_image(data, kind, images)
        case types.AudioContent(data=data, mime_type=kind):
            return f"[audio, {kind}, {_format_size(data)}]"
        case types.ResourceLink(uri=uri, name=name, description=about):
            return f"[resource {uri}: {name}{f', {about}' if about else ''}]"
        case types.EmbeddedResource(resource=types.TextResourceContents(uri=uri, text=text)):
            return f"[resource {uri}]\n{text}"
        case types.EmbeddedResource(resource=types.BlobResourceContents(uri=uri, blob=data, mime_type=kind)):
            if kind in IMAGE_TYPES:
                return f"[resource {uri}] {_describe_image(data, kind, images)}"
            return f"[resource {uri}, {kind or 'binary'}, {_format_size(data)}]"
        case _:
            return f"[content of type {getattr(block, 'type', '?')}]"


def _describe_image(data: str, kind: str, images: list[Image]) -> str:
    size = len(data) * 3 // 4
    if (
        kind not in IMAGE_TYPES
        or size > MAX_MCP_IMAGE_BYTES
        or len(images) == MAX_MCP_IMAGES
        or not _is_base64(data)
    ):
        return f"[image, {kind}, {_format_size(data)}, not shown]"
    images.append(Image(kind, data))
    return f"[image {len(images)}, {kind}]"


def _is_base64(data: str) -> bool:
    try:
        b64decode(data, validate=True)
    except ValueError:
        return False
    return True


def _format_size(data: str) -> str:
    return f"{len(data) * 3 // 4:,} bytes"


def _repeats(structured: Any, parts: list[str]) -> bool:
    """Return whether the text of a result has its structured content already, as servers should send it."""
    if structured == {"result": "\n".join(parts)}:
        return True
    for part in parts:
        if part[:1] in '{["' or part in ("true", "false", "null") or part[:1].isdigit():
            try:
                if json.loads(part) == structured:
                    return True
            except (ValueError, RecursionError):
                continue
    return False
