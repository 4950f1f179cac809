"""The whole text of results that were too long to be shown."""

from typing import Protocol

from treadle.domain.envelope import Origin
from treadle.domain.ids import SessionId


class Results(Protocol):
    async def keep(self, origin: Origin, call_id: str, content: str) -> None:
        """Keep it for as long as its run is kept. The same call again replaces it."""
        ...

    async def read(self, session_id: SessionId, call_id: str) -> str | None:
        """What was kept last for this call in this session; None: nothing."""
        ...
