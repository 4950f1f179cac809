"""The full text of truncated results, on SQLite."""

from treadle.domain.envelope import Origin
from treadle.domain.ids import SessionId
from treadle.stores.sqlite.connection import SQL
from treadle.stores.sqlite.transaction import Transaction
from treadle.stores.sqlite.writer import SqliteWriter


class SqliteResults:
    """Implements `ports.results.Results`."""

    def __init__(self, writer: SqliteWriter) -> None:
        self._writer = writer

    async def keep(self, origin: Origin, call_id: str, content: str) -> None:
        def work(transaction: Transaction) -> None:
            transaction.db.execute(SQL["keep_result"], (origin.session_id, origin.run_id, call_id, content))

        await self._writer.write(work, lambda _: None, patient=True)

    async def read(self, session_id: SessionId, call_id: str) -> str | None:
        found = await self._writer.read(lambda db: db.execute(SQL["result"], (session_id, call_id)).fetchone())
        return None if found is None else str(found[0])
