"""Queries over all runs, for people: messages that contain a text, and the workers that own runs."""

from collections.abc import Sequence
from typing import Final, Generic, Protocol

import msgspec
from msgspec import Struct

from treadle.domain.ids import Instant, Time
from treadle.domain.users import UserId
from treadle.ports.journal import PositionedEvent

SEARCHED_TYPES: Final = ("user_message", "message_steered", "run_forked", "run_end")
"""The events whose text a search reads: what users said, and the answers."""
SEARCHED_POSITIONS = 200_000
"""Maximum number of positions that one search reads."""


class SearchQuery(Struct, frozen=True):
    """Selects messages. None means no restriction."""

    text: str
    before: int | None = None
    """Only events before this position."""
    limit: int = 50
    agents: tuple[str, ...] | None = None
    owner: UserId | None = None


class FoundEvents(Struct, frozen=True):
    """Matching events, the latest first."""

    events: tuple[PositionedEvent, ...]
    next: int | None
    """Where a further search continues; None if everything was read."""


class WorkerFields(Struct, Generic[Time], frozen=True):
    """A worker that owns runs now."""

    worker: str
    runs: int
    lease_until: Time | None
    """When the first of its leases expires unless it is renewed."""


class WorkerLease(WorkerFields[Instant], frozen=True):
    """A worker as it is stored."""


class Overview(Protocol):
    async def search(self, query: SearchQuery) -> FoundEvents:
        """Return events of the types in SEARCHED_TYPES whose data contains a text, ignoring ASCII case.

        The text may be in any field: callers check the fields that they mean. Read at most SEARCHED_POSITIONS
        positions."""
        ...

    async def workers(self) -> Sequence[WorkerLease]:
        """Return the workers that own runs, by name."""
        ...


def like_pattern(text: str) -> str:
    """Return the pattern of SQL LIKE, with the escape character `\\`, for JSON data that contains a text."""
    encoded = msgspec.json.encode(text).decode()[1:-1]
    return "%" + encoded.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
