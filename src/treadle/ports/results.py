"""Storage for the full text of truncated tool results."""

from typing import Protocol

from treadle.domain.envelope import Origin
from treadle.domain.ids import SessionId


class Results(Protocol):
    async def keep(self, origin: Origin, call_id: str, content: str) -> None:
        """Store a result for the lifetime of its run. The same call again replaces it."""
        ...

    async def read(self, session_id: SessionId, call_id: str) -> str | None:
        """Return the latest result of this call in this session, or None."""
        ...
