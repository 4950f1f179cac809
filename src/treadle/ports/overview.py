"""Queries over all runs, for people: messages that contain a text, and the workers that own runs."""

from collections.abc import Sequence
from typing import Generic, Protocol

import msgspec
from msgspec import Struct

from treadle.domain.ids import Instant, Time
from treadle.domain.users import UserId
from treadle.ports.journal import PositionedEvent

SCANNED_TEXTS = 20_000
"""Maximum number of texts that one search reads which are not in the index."""
INDEXED_TEXTS = 100
"""Maximum number of texts that are added to the index in one transaction."""
CANDIDATES = 500
"""Maximum number of texts that one search reads of those that the index names."""


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
    """A worker that is connected or owns runs now."""

    worker: str
    """Its host, process and a mark of its own."""
    runs: int
    """The runs that it executes now."""
    lease_until: Time | None
    """When the first of its leases expires unless it is renewed. Null if it owns no run."""
    version: str = ""
    """The version of Treadle; empty if it is not connected or not known."""
    places: int | None = None
    """The most runs that it executes at a time. Null if it is not known."""
    connected_at: Time | None = None
    """Null if it is not connected: its runs go to another worker when their leases have expired."""


class WorkerLease(WorkerFields[Instant], frozen=True):
    """A worker as it is stored."""


class Overview(Protocol):
    async def search(self, query: SearchQuery) -> FoundEvents:
        """Return events in which something was said, of which the latest may contain the text; callers check that
        it does. One search reads a limited number of texts: it may return nothing and still have a `next`."""
        ...

    async def index_texts(self) -> bool:
        """Add the oldest texts that are not in the index of searches, up to INDEXED_TEXTS. Return whether there may
        be more."""
        ...

    async def workers(self) -> Sequence[WorkerLease]:
        """Return the workers that own runs or wait for some, by name."""
        ...


def like_pattern(text: str) -> str:
    """Return the pattern of SQL LIKE, with the escape character `\\`, for JSON data that contains a text."""
    encoded = msgspec.json.encode(text).decode()[1:-1]
    return "%" + encoded.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
