"""Types that the requests and views of several entities share."""

from datetime import UTC, date, datetime
from functools import cache
from typing import Annotated, Any, Generic, TypeVar, get_args

import msgspec
from msgspec import Meta, Struct

from treadle.domain.ids import Instant, RunId, SessionId
from treadle.domain.labels import MAX_METADATA, MAX_TAGS, MAX_VALUE_CHARACTERS, TAG_PATTERN
from treadle.domain.limits import MAX_CLIENT_TOOLS
from treadle.domain.messages import MESSAGE_LIMIT
from treadle.domain.tools import ClientTool
from treadle.domain.workspaces import MAX_WORKSPACE_CHARACTERS

Item = TypeVar("Item")
View = TypeVar("View", bound=Struct)
Said = Annotated[str, Meta(min_length=1, max_length=MESSAGE_LIMIT)]
"""A text that a caller sends to an agent."""
FirstSaid = Annotated[str, Meta(min_length=1, extra_json_schema={"maxLength": MESSAGE_LIMIT})]
"""The message of a new run. Its length is checked after the state of the agent, in the order of all such checks."""
AgentName = Annotated[str, Meta(min_length=1, max_length=64)]
WorkspaceName = Annotated[
    str, Meta(min_length=1, max_length=MAX_WORKSPACE_CHARACTERS, description="The id of a workspace.")
]
FolderName = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=MAX_WORKSPACE_CHARACTERS,
        description="The real path of a folder of the workspace: also what worked there before it became a "
        "repository.",
    ),
]
ServedUser = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=1000,
        description="The person whom the run is for. They own a new session, and recall only their own memories.",
    ),
]
Tag = Annotated[str, Meta(extra_json_schema={"pattern": f"^{TAG_PATTERN}$"})]
Tags = Annotated[
    tuple[Tag, ...],
    Meta(description="Tags of the run and its child runs.", extra_json_schema={"maxItems": MAX_TAGS}),
]
"""The domain checks them, for every surface with the same message. So it does with metadata."""
Metadata = Annotated[
    dict[Tag, Annotated[str, Meta(extra_json_schema={"maxLength": MAX_VALUE_CHARACTERS})]],
    Meta(
        description="What the client notes about the run and its child runs, by name.",
        extra_json_schema={"maxProperties": MAX_METADATA},
    ),
]


class BroughtTool(ClientTool, frozen=True, forbid_unknown_fields=True):
    """A tool that the client runs itself."""


ClientTools = Annotated[
    tuple[BroughtTool, ...],
    Meta(
        description="Tools that the client runs itself. The run waits for the result of each call.",
        extra_json_schema={"maxItems": MAX_CLIENT_TOOLS},
    ),
]
WantedTags = Annotated[
    tuple[Tag, ...],
    Meta(description="Only runs that have this tag. Repeatable.", extra_json_schema={"maxItems": MAX_TAGS}),
]
WantedMetadata = Annotated[
    tuple[Annotated[str, Meta(extra_json_schema={"pattern": f"^{TAG_PATTERN}="})], ...],
    Meta(
        description="Only runs with this metadata, as NAME=VALUE. Repeatable.",
        extra_json_schema={"maxItems": MAX_METADATA},
    ),
]
WantedUser = Annotated[
    str,
    Meta(
        min_length=1,
        max_length=1000,
        description="Only runs of this user, as `owner` shows it or as the client named it.",
    ),
]
SessionName = Annotated[str, Meta(min_length=1, max_length=200)]
Cursor = Annotated[str, Meta(max_length=200, description="`next` of the page before.")]
Limit = Annotated[int, Meta(ge=1, le=500, description="How many.")]


class Page(Struct, Generic[Item], frozen=True):
    """Part of a list. `next` is the cursor of the next page; null where there is none."""

    items: tuple[Item, ...]
    next: str | None = None


class Ticket(Struct, frozen=True):
    """The run that answers a message, and its session."""

    run_id: RunId
    session_id: SessionId
    after: int = 0
    """Sequence of the last event of the run before the message; 0: the message began the run."""


class Delivered(Struct, frozen=True):
    """The sequence of the event in the journal of the run."""

    sequence: int


def moment(at: Instant) -> datetime:
    return datetime.fromtimestamp(at, UTC)


def maybe(at: Instant | None) -> datetime | None:
    """Return the time as a date, or None if there is none or it is beyond the calendar."""
    try:
        return None if at is None else moment(at)
    except (ValueError, OverflowError, OSError):
        return None


def instant(at: datetime | None) -> Instant | None:
    return None if at is None else at.timestamp()


def make_view(view: type[View], record: Struct, **more: Any) -> View:
    """Return a view with the fields that a record has by the same names, its times as dates, and with these."""
    for name, is_time in _list_view_fields(view):
        if name not in more:
            value = getattr(record, name)
            more[name] = maybe(value) if is_time else value
    return view(**more)


@cache
def _list_view_fields(view: type[Struct]) -> tuple[tuple[str, bool], ...]:
    """Return the names of the fields, and whether each is a time."""
    fields = msgspec.structs.fields(view)
    return tuple([(each.name, any(map(_is_time, (each.type, *get_args(each.type))))) for each in fields])


def _is_time(kind: object) -> bool:
    return isinstance(kind, type) and issubclass(kind, date)
