"""Sign-ins of browsers, and one-time codes, on PostgreSQL."""

from treadle.domain.ids import Instant, TokenId
from treadle.ports.access import SignIn
from treadle.stores.postgres.access import to_token_record
from treadle.stores.postgres.database import PostgresDatabase


class PostgresSignIns:
    """Implements `ports.access.SignInStore`."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def add(self, sign_in: SignIn, digest: bytes) -> None:
        values = (sign_in.sign_in_id, digest, sign_in.token_id, sign_in.created_at, sign_in.used_at)
        await self._database.rows("add_sign_in", *values)

    async def find(self, digest: bytes) -> SignIn | None:
        found = await self._database.row("sign_in_by_digest", digest)
        if found is None:
            return None
        sign_in_id, token_id, created_at, used_at, *token = tuple(found)
        return SignIn(
            sign_in_id, token_id, created_at, used_at, None if token[0] is None else to_token_record(token)
        )

    async def touch(self, sign_in_id: str, at: Instant) -> None:
        await self._database.rows("use_sign_in", sign_in_id, at)

    async def remove(self, sign_in_id: str) -> None:
        await self._database.rows("delete_sign_in", sign_in_id)

    async def remove_all(self, token_id: TokenId | None) -> int:
        return len(await self._database.rows("delete_sign_ins_of", token_id))

    async def remove_old(self, used_before: Instant, created_before: Instant) -> None:
        await self._database.rows("delete_old_sign_ins", used_before, created_before)

    async def add_code(self, digest: bytes, expires_at: Instant) -> None:
        await self._database.rows("add_sign_in_code", digest, expires_at)

    async def take_code(self, digest: bytes, now: Instant) -> bool:
        taken = await self._database.row("take_sign_in_code", digest, now) is not None
        await self._database.rows("delete_old_sign_in_codes", now)
        return taken
