"""One table of limits on data that models, providers, tools, MCP servers and clients send.

Each limit is a constant, so that a module imports the number that it enforces, and an entry of `LIMITS`, which the
documentation lists and for which a test must exist. Limits of one tool or one store are in their own modules."""

from typing import Final, Literal

from msgspec import Struct

MB: Final = 1024 * 1024

# ── Replies of models ──

MAX_REPLY_BYTES: Final = 256 * MB
MAX_REPLY_EVENT_BYTES: Final = 16 * MB
MAX_REPLY_CHARACTERS: Final = 16_000_000
MAX_REPLY_PARTS: Final = 4000
DEFAULT_MAX_CALLS: Final = 128
MAX_CALL_NAME_CHARACTERS: Final = 256
MAX_CALL_ID_CHARACTERS: Final = 256
MAX_NAME_PIECES: Final = 64
MAX_WRITTEN_CALLS_CHARACTERS: Final = 1_000_000
MAX_REPORTED_TOKENS: Final = 100_000_000
MAX_JSON_DEPTH: Final = 100

# ── Results of tools ──

MAX_RESULT_CHARACTERS: Final = 16_000_000
MAX_RESULT_IMAGES: Final = 16

# ── MCP servers ──

MAX_MCP_MESSAGE_BYTES: Final = 16 * MB
MAX_MCP_NOISE_BYTES: Final = MB
MAX_MCP_UNASKED_MESSAGES: Final = 5000
MAX_MCP_TOOLS: Final = 2000
MAX_MCP_PAGES: Final = 100
MAX_MCP_CURSOR_CHARACTERS: Final = 4096
MAX_MCP_TOOL_BYTES: Final = 256 * 1024
MAX_MCP_BLOCKS: Final = 1000
MAX_MCP_IMAGES: Final = 8
MAX_MCP_IMAGE_BYTES: Final = 5 * MB
MAX_MCP_FIELDS: Final = 50
MAX_MCP_TEXT_CHARACTERS: Final = 2000
MAX_MCP_TITLE_CHARACTERS: Final = 200

# ── Clients ──

DEFAULT_MAX_ATTACHMENT_BYTES: Final = 20_000_000
DEFAULT_STREAM_MEMORY_BYTES: Final = 256 * MB

LimitUnit = Literal["bytes", "characters", "levels", "tokens", "entries"]
Sender = Literal["model", "tool", "MCP server", "client"]


class Limit(Struct, frozen=True):
    """A limit: what it bounds, and what happens beyond it."""

    name: str
    value: int
    unit: LimitUnit
    sender: Sender
    what: str
    beyond: str
    setting: str = ""
    """The setting that changes it; empty if it is fixed."""


_FAILS = "The model call fails and may be retried."

LIMITS: Final = (
    Limit("reply_bytes", MAX_REPLY_BYTES, "bytes", "model", "One reply as received", _FAILS),
    Limit("reply_event_bytes", MAX_REPLY_EVENT_BYTES, "bytes", "model", "One event of a reply", _FAILS),
    Limit(
        "reply_characters",
        MAX_REPLY_CHARACTERS,
        "characters",
        "model",
        "Text, reasoning and arguments of one reply",
        _FAILS,
    ),
    Limit("reply_parts", MAX_REPLY_PARTS, "entries", "model", "Blocks or items of one reply", _FAILS),
    Limit(
        "calls",
        DEFAULT_MAX_CALLS,
        "entries",
        "model",
        "Tool calls of one reply",
        "Further calls are dropped as they arrive. One `calls_dropped` event counts them, and the model is told.",
        "limits.max_calls",
    ),
    Limit(
        "call_name",
        MAX_CALL_NAME_CHARACTERS,
        "characters",
        "model",
        "Tool name of a call",
        "The name is cut, so no tool has it, and the call fails.",
    ),
    Limit(
        "call_id",
        MAX_CALL_ID_CHARACTERS,
        "characters",
        "model",
        "ID of a call",
        "The engine replaces the ID.",
    ),
    Limit(
        "call_name_pieces",
        MAX_NAME_PIECES,
        "entries",
        "model",
        "Pieces in which a tool name arrives",
        "Only the latest of the further pieces counts.",
    ),
    Limit(
        "written_calls",
        MAX_WRITTEN_CALLS_CHARACTERS,
        "characters",
        "model",
        "Calls that a model writes in its text (`call_dialect`)",
        "The calls stay text and do not run.",
    ),
    Limit(
        "reported_tokens",
        MAX_REPORTED_TOKENS,
        "tokens",
        "model",
        "Each token count that a provider reports",
        "A larger or negative count is ignored and an estimate is used.",
    ),
    Limit(
        "json_depth",
        MAX_JSON_DEPTH,
        "levels",
        "model",
        "Nesting of the arguments of a call",
        "The call fails at once, and the model is told.",
    ),
    Limit(
        "result_characters",
        MAX_RESULT_CHARACTERS,
        "characters",
        "tool",
        "Text of one result, before it is truncated for the model",
        "The rest is dropped, and the text says so.",
    ),
    Limit(
        "result_images",
        MAX_RESULT_IMAGES,
        "entries",
        "tool",
        "Images of one result",
        "Further images are dropped, and the text says so.",
    ),
    Limit(
        "mcp_message_bytes",
        MAX_MCP_MESSAGE_BYTES,
        "bytes",
        "MCP server",
        "One message",
        "A program is stopped; a response over HTTP fails its call.",
    ),
    Limit(
        "mcp_noise_bytes",
        MAX_MCP_NOISE_BYTES,
        "bytes",
        "MCP server",
        "Output of a program that is not a message",
        "The program is stopped.",
    ),
    Limit(
        "mcp_unasked_messages",
        MAX_MCP_UNASKED_MESSAGES,
        "entries",
        "MCP server",
        "Notifications and requests between two responses",
        "The connection is closed.",
    ),
    Limit("mcp_tools", MAX_MCP_TOOLS, "entries", "MCP server", "Listed tools", "Further tools are left out."),
    Limit(
        "mcp_pages",
        MAX_MCP_PAGES,
        "entries",
        "MCP server",
        "Pages of the list of tools",
        "Further pages are left out, and so are those after a cursor that repeats.",
    ),
    Limit(
        "mcp_cursor",
        MAX_MCP_CURSOR_CHARACTERS,
        "characters",
        "MCP server",
        "Cursor of a page",
        "The connection fails.",
    ),
    Limit(
        "mcp_tool_bytes",
        MAX_MCP_TOOL_BYTES,
        "bytes",
        "MCP server",
        "One tool with its description and schema",
        "The tool is left out.",
    ),
    Limit(
        "mcp_depth",
        MAX_JSON_DEPTH,
        "levels",
        "MCP server",
        "Nesting of structured content and schemas",
        "The call fails at once; a tool with such a schema is left out.",
    ),
    Limit(
        "mcp_blocks",
        MAX_MCP_BLOCKS,
        "entries",
        "MCP server",
        "Content blocks of one result",
        "Further blocks are left out, and the text says so.",
    ),
    Limit(
        "mcp_images",
        MAX_MCP_IMAGES,
        "entries",
        "MCP server",
        "Images of one result",
        "Further images are named and not shown.",
    ),
    Limit(
        "mcp_image_bytes",
        MAX_MCP_IMAGE_BYTES,
        "bytes",
        "MCP server",
        "One image of a result",
        "The image is named and not shown.",
    ),
    Limit(
        "mcp_fields",
        MAX_MCP_FIELDS,
        "entries",
        "MCP server",
        "Fields of a question, and options of a field",
        "The question is declined; further options are left out.",
    ),
    Limit(
        "mcp_texts",
        MAX_MCP_TEXT_CHARACTERS,
        "characters",
        "MCP server",
        "Questions, progress messages and errors",
        "The text is cut.",
    ),
    Limit(
        "mcp_title",
        MAX_MCP_TITLE_CHARACTERS,
        "characters",
        "MCP server",
        "Name and version of the server",
        "The text is cut.",
    ),
    Limit(
        "attachment_bytes",
        DEFAULT_MAX_ATTACHMENT_BYTES,
        "bytes",
        "client",
        "One attachment of a message",
        "The message is rejected.",
        "limits.max_attachment_bytes",
    ),
    Limit(
        "stream_memory_bytes",
        DEFAULT_STREAM_MEMORY_BYTES,
        "bytes",
        "client",
        "Events that all stream readers of a process have not read yet",
        "The slowest readers are disconnected; they resume from their last event.",
        "server.stream_memory",
    ),
)
