"""One table of limits on data that models, providers, tools, MCP servers and clients send.

Each limit is a constant, so that a module imports the number that it enforces, and an entry of `LIMITS`, which the
documentation lists and for which a test must exist. Limits of one tool or one store are in their own modules."""

from typing import Annotated, Any, Final, Literal, get_args, get_origin

from msgspec import Meta, Struct

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
MAX_CLIENT_TOOLS: Final = 128
MAX_CLIENT_TOOL_BYTES: Final = 256 * 1024

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
    Limit(
        name="reply_bytes",
        value=MAX_REPLY_BYTES,
        unit="bytes",
        sender="model",
        what="One reply as received",
        beyond=_FAILS,
    ),
    Limit(
        name="reply_event_bytes",
        value=MAX_REPLY_EVENT_BYTES,
        unit="bytes",
        sender="model",
        what="One event of a reply",
        beyond=_FAILS,
    ),
    Limit(
        name="reply_characters",
        value=MAX_REPLY_CHARACTERS,
        unit="characters",
        sender="model",
        what="Text, reasoning and arguments of one reply",
        beyond=_FAILS,
    ),
    Limit(
        name="reply_parts",
        value=MAX_REPLY_PARTS,
        unit="entries",
        sender="model",
        what="Blocks or items of one reply",
        beyond=_FAILS,
    ),
    Limit(
        name="calls",
        value=DEFAULT_MAX_CALLS,
        unit="entries",
        sender="model",
        what="Tool calls of one reply",
        beyond="Further calls are dropped as they arrive. One `calls_dropped` event counts them, "
        "and the model is told.",
        setting="limits.max_calls",
    ),
    Limit(
        name="call_name",
        value=MAX_CALL_NAME_CHARACTERS,
        unit="characters",
        sender="model",
        what="Tool name of a call",
        beyond="The name is cut, so no tool has it, and the call fails.",
    ),
    Limit(
        name="call_id",
        value=MAX_CALL_ID_CHARACTERS,
        unit="characters",
        sender="model",
        what="ID of a call",
        beyond="The engine replaces the ID.",
    ),
    Limit(
        name="call_name_pieces",
        value=MAX_NAME_PIECES,
        unit="entries",
        sender="model",
        what="Pieces in which a tool name arrives",
        beyond="Only the latest of the further pieces counts.",
    ),
    Limit(
        name="written_calls",
        value=MAX_WRITTEN_CALLS_CHARACTERS,
        unit="characters",
        sender="model",
        what="Calls that a model writes in its text (`call_dialect`)",
        beyond="The calls stay text and do not run.",
    ),
    Limit(
        name="reported_tokens",
        value=MAX_REPORTED_TOKENS,
        unit="tokens",
        sender="model",
        what="Each token count that a provider reports",
        beyond="A larger or negative count is ignored and an estimate is used.",
    ),
    Limit(
        name="json_depth",
        value=MAX_JSON_DEPTH,
        unit="levels",
        sender="model",
        what="Nesting of the arguments of a call",
        beyond="The call fails at once, and the model is told.",
    ),
    Limit(
        name="result_characters",
        value=MAX_RESULT_CHARACTERS,
        unit="characters",
        sender="tool",
        what="Text of one result, before it is truncated for the model",
        beyond="The rest is dropped, and the text says so.",
    ),
    Limit(
        name="result_images",
        value=MAX_RESULT_IMAGES,
        unit="entries",
        sender="tool",
        what="Images of one result",
        beyond="Further images are dropped, and the text says so.",
    ),
    Limit(
        name="mcp_message_bytes",
        value=MAX_MCP_MESSAGE_BYTES,
        unit="bytes",
        sender="MCP server",
        what="One message",
        beyond="A program is stopped; a response over HTTP fails its call.",
    ),
    Limit(
        name="mcp_noise_bytes",
        value=MAX_MCP_NOISE_BYTES,
        unit="bytes",
        sender="MCP server",
        what="Output of a program that is not a message",
        beyond="The program is stopped.",
    ),
    Limit(
        name="mcp_unasked_messages",
        value=MAX_MCP_UNASKED_MESSAGES,
        unit="entries",
        sender="MCP server",
        what="Notifications and requests between two responses",
        beyond="The connection is closed.",
    ),
    Limit(
        name="mcp_tools",
        value=MAX_MCP_TOOLS,
        unit="entries",
        sender="MCP server",
        what="Listed tools",
        beyond="Further tools are left out.",
    ),
    Limit(
        name="mcp_pages",
        value=MAX_MCP_PAGES,
        unit="entries",
        sender="MCP server",
        what="Pages of the list of tools",
        beyond="Further pages are left out, and so are those after a cursor that repeats.",
    ),
    Limit(
        name="mcp_cursor",
        value=MAX_MCP_CURSOR_CHARACTERS,
        unit="characters",
        sender="MCP server",
        what="Cursor of a page",
        beyond="The connection fails.",
    ),
    Limit(
        name="mcp_tool_bytes",
        value=MAX_MCP_TOOL_BYTES,
        unit="bytes",
        sender="MCP server",
        what="One tool with its description and schema",
        beyond="The tool is left out.",
    ),
    Limit(
        name="mcp_depth",
        value=MAX_JSON_DEPTH,
        unit="levels",
        sender="MCP server",
        what="Nesting of structured content and schemas",
        beyond="The call fails at once; a tool with such a schema is left out.",
    ),
    Limit(
        name="mcp_blocks",
        value=MAX_MCP_BLOCKS,
        unit="entries",
        sender="MCP server",
        what="Content blocks of one result",
        beyond="Further blocks are left out, and the text says so.",
    ),
    Limit(
        name="mcp_images",
        value=MAX_MCP_IMAGES,
        unit="entries",
        sender="MCP server",
        what="Images of one result",
        beyond="Further images are named and not shown.",
    ),
    Limit(
        name="mcp_image_bytes",
        value=MAX_MCP_IMAGE_BYTES,
        unit="bytes",
        sender="MCP server",
        what="One image of a result",
        beyond="The image is named and not shown.",
    ),
    Limit(
        name="mcp_fields",
        value=MAX_MCP_FIELDS,
        unit="entries",
        sender="MCP server",
        what="Fields of a question, and options of a field",
        beyond="The question is declined; further options are left out.",
    ),
    Limit(
        name="mcp_texts",
        value=MAX_MCP_TEXT_CHARACTERS,
        unit="characters",
        sender="MCP server",
        what="Questions, progress messages and errors",
        beyond="The text is cut.",
    ),
    Limit(
        name="mcp_title",
        value=MAX_MCP_TITLE_CHARACTERS,
        unit="characters",
        sender="MCP server",
        what="Name and version of the server",
        beyond="The text is cut.",
    ),
    Limit(
        name="attachment_bytes",
        value=DEFAULT_MAX_ATTACHMENT_BYTES,
        unit="bytes",
        sender="client",
        what="One attachment of a message",
        beyond="The message is rejected.",
        setting="limits.max_attachment_bytes",
    ),
    Limit(
        name="client_tools",
        value=MAX_CLIENT_TOOLS,
        unit="entries",
        sender="client",
        what="Tools that a client brings to a run",
        beyond="The message is rejected.",
    ),
    Limit(
        name="client_tool_bytes",
        value=MAX_CLIENT_TOOL_BYTES,
        unit="bytes",
        sender="client",
        what="These tools with their descriptions and schemas",
        beyond="The message is rejected.",
    ),
    Limit(
        name="stream_memory_bytes",
        value=DEFAULT_STREAM_MEMORY_BYTES,
        unit="bytes",
        sender="client",
        what="Events that all stream readers of a process have not read yet",
        beyond="The slowest readers are disconnected; they resume from their last event.",
        setting="server.stream_memory",
    ),
)

# ── Bounds of settings ──
# The structs that have them check the bounds, with messages of their own. The types tell them to readers of the API
# description.

_ABOVE_ZERO = Meta(extra_json_schema={"exclusiveMinimum": 0})
_FROM_ZERO = Meta(extra_json_schema={"minimum": 0})

PositiveInt = Annotated[int, _ABOVE_ZERO]
PositiveFloat = Annotated[float, _ABOVE_ZERO]
Count = Annotated[int, _FROM_ZERO]
Amount = Annotated[float, _FROM_ZERO]
RecallCount = Annotated[int, Meta(extra_json_schema={"minimum": 0, "maximum": 50})]
Share = Annotated[float, Meta(extra_json_schema={"minimum": 0, "maximum": 1})]
PositiveShare = Annotated[float, Meta(extra_json_schema={"exclusiveMinimum": 0, "maximum": 1})]
SECRET_NAME_PATTERN = r"[A-Za-z_][A-Za-z0-9_]{0,63}"
"""The names of secrets. Some of them are reserved."""


def strip_bounds(kind: Any) -> Any:
    """Return a type without the bounds around it."""
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind
