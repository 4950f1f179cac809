"""The full text of truncated results, on PostgreSQL."""

from treadle.domain.envelope import Origin
from treadle.domain.ids import SessionId
from treadle.stores.postgres.batch import explain_missing_run
from treadle.stores.postgres.connection import unescape_nul
from treadle.stores.postgres.database import PostgresDatabase


class PostgresResults:
    """Implements `ports.results.Results`."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def keep(self, origin: Origin, call_id: str, content: str) -> None:
        values = (origin.session_id, origin.run_id, call_id, content)
        if await self._database.row("keep_result", *values, patient=True) is None:
            raise explain_missing_run(origin.run_id, (None, None, None))

    async def read(self, session_id: SessionId, call_id: str) -> str | None:
        found = await self._database.row("result", session_id, call_id)
        return None if found is None else unescape_nul(found[0])
