"""Tokens and idempotent requests on PostgreSQL."""

from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.domain.ids import Instant, TokenId
from treadle.domain.quotas import Quotas
from treadle.ports.access import IdempotentRequest, StoredResponse, TokenRecord
from treadle.stores.postgres.connection import unescape_nul
from treadle.stores.postgres.database import PostgresDatabase
from treadle.stores.postgres.driver import PostgresRow

_encode = msgspec.json.Encoder().encode


class PostgresTokens:
    """Implements `ports.access.Tokens`."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def add(self, record: TokenRecord, digest: bytes) -> None:
        await self._database.rows(
            "add_token",
            record.token_id,
            record.name,
            digest,
            _text(record.scopes),
            _text(record.agents),
            _text(record.quotas),
            record.created_at,
            record.expires_at,
            record.owner,
            record.visibility,
            record.multi_user,
        )

    async def find(self, digest: bytes) -> TokenRecord | None:
        found = await self._database.row("token_by_digest", digest)
        return None if found is None else to_token_record(found)

    async def find_digest(self, token_id: TokenId) -> bytes | None:
        found = await self._database.row("token_digest", token_id)
        return None if found is None else bytes(found[0])

    async def list(self) -> Sequence[TokenRecord]:
        return [to_token_record(row) for row in await self._database.rows("tokens")]

    async def revoke(self, token_id: TokenId, at: Instant) -> bool:
        return await self._database.row("revoke_token", token_id, at) is not None

    async def touch(self, token_id: TokenId, at: Instant) -> None:
        await self._database.rows("touch_token", token_id, at)


class PostgresRequests:
    """Implements `ports.access.IdempotencyStore` for all processes."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database

    async def begin(self, request: IdempotentRequest, digest: bytes, at: Instant) -> StoredResponse:
        while (found := await self._database.row("begin_request", *_key(request), digest, at)) is None:
            pass  # another process inserted it after the statement started
        return StoredResponse(found[0], found[1], found[2] or b"")

    async def answer(self, request: IdempotentRequest, response: StoredResponse) -> None:
        await self._database.rows("answer_request", *_key(request), response.status, response.body)

    async def forget(self, before: Instant) -> None:
        await self._database.rows("forget_requests", before)


def _key(asked: IdempotentRequest) -> tuple[str, str, str]:
    return asked.token_id or "", asked.route, asked.key


def _text(value: object) -> str | None:
    return None if value is None else _encode(value).decode()


def to_token_record(row: PostgresRow | Sequence[Any]) -> TokenRecord:
    token_id, name, scopes, agents, created_at, expires_at, revoked_at, quotas, owner, visibility, *more = row
    multi_user, last_used_at = more
    return TokenRecord(
        token_id=token_id,
        name=unescape_nul(name),
        scopes=tuple(msgspec.json.decode(scopes)),
        agents=None if agents is None else tuple(msgspec.json.decode(agents)),
        created_at=created_at,
        expires_at=expires_at,
        revoked_at=revoked_at,
        quotas=None if quotas is None else msgspec.json.decode(quotas, type=Quotas),
        owner=owner,
        visibility=visibility,
        multi_user=bool(multi_user),
        last_used_at=last_used_at,
    )
