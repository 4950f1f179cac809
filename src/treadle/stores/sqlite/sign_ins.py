"""Sign-ins of browsers, and one-time codes, on SQLite."""

from treadle.domain.ids import Instant, TokenId
from treadle.ports.access import SignIn
from treadle.stores.sqlite.access import to_token_record
from treadle.stores.sqlite.connection import SQL, Value
from treadle.stores.sqlite.transaction import Transaction
from treadle.stores.sqlite.writer import SqliteWriter


class SqliteSignIns:
    """Implements `ports.access.SignInStore`."""

    def __init__(self, writer: SqliteWriter) -> None:
        self._writer = writer

    async def add(self, sign_in: SignIn, digest: bytes) -> None:
        values = (sign_in.sign_in_id, digest, sign_in.token_id, sign_in.created_at, sign_in.used_at)
        await self._execute("insert_sign_in", values)

    async def find(self, digest: bytes) -> SignIn | None:
        found = await self._writer.read(lambda db: db.execute(SQL["sign_in_by_digest"], (digest,)).fetchone())
        if found is None:
            return None
        sign_in_id, token_id, created_at, used_at, *token = found
        return SignIn(
            sign_in_id, token_id, created_at, used_at, None if token[0] is None else to_token_record(token)
        )

    async def touch(self, sign_in_id: str, at: Instant) -> None:
        await self._execute("use_sign_in", (at, sign_in_id))

    async def remove(self, sign_in_id: str) -> None:
        await self._execute("delete_sign_in", (sign_in_id,))

    async def remove_all(self, token_id: TokenId | None) -> int:
        return await self._execute("delete_sign_ins_of", (token_id,))

    async def remove_old(self, used_before: Instant, created_before: Instant) -> None:
        await self._execute("delete_old_sign_ins", (used_before, created_before))

    async def add_code(self, digest: bytes, expires_at: Instant) -> None:
        await self._execute("insert_sign_in_code", (digest, expires_at))

    async def take_code(self, digest: bytes, now: Instant) -> bool:
        taken = await self._execute("take_sign_in_code", (digest, now)) == 1
        await self._execute("delete_old_sign_in_codes", (now,))
        return taken

    async def _execute(self, statement: str, values: tuple[Value, ...]) -> int:
        """Write a statement. Return how many rows it returned."""

        def work(transaction: Transaction) -> int:
            return len(transaction.db.execute(SQL[statement], values).fetchall())

        return await self._writer.write(work, _do_nothing, patient=False)


def _do_nothing(_: object) -> None:
    """Do nothing after the commit."""
