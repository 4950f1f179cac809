"""Tokens and idempotent requests on SQLite."""

from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.domain.ids import Instant, TokenId
from treadle.domain.quotas import Quotas
from treadle.ports.access import IdempotentRequest, StoredResponse, TokenRecord
from treadle.stores.sqlite.connection import SQL, SqliteDatabase
from treadle.stores.sqlite.transaction import Transaction
from treadle.stores.sqlite.writer import SqliteWriter

_encode = msgspec.json.Encoder().encode


class SqliteTokens:
    """Implements `ports.access.Tokens`."""

    def __init__(self, writer: SqliteWriter) -> None:
        self._writer = writer

    async def add(self, record: TokenRecord, digest: bytes) -> None:
        values = (
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

        def work(transaction: Transaction) -> None:
            transaction.db.execute(SQL["insert_token"], values)

        await self._writer.write(work, _do_nothing, patient=False)

    async def find(self, digest: bytes) -> TokenRecord | None:
        found = await self._writer.read(lambda db: db.execute(SQL["token_by_digest"], (digest,)).fetchone())
        return None if found is None else to_token_record(found)

    async def find_digest(self, token_id: TokenId) -> bytes | None:
        found = await self._writer.read(lambda db: db.execute(SQL["token_digest"], (token_id,)).fetchone())
        return None if found is None else bytes(found[0])

    async def list(self) -> Sequence[TokenRecord]:
        return await self._writer.read(lambda db: [to_token_record(row) for row in db.execute(SQL["tokens"])])

    async def revoke(self, token_id: TokenId, at: Instant) -> bool:
        def work(transaction: Transaction) -> bool:
            return transaction.db.execute(SQL["revoke_token"], (at, token_id)).fetchone() is not None

        return await self._writer.write(work, _do_nothing, patient=False)

    async def touch(self, token_id: TokenId, at: Instant) -> None:
        def work(transaction: Transaction) -> None:
            transaction.db.execute(SQL["touch_token"], (token_id, at))

        await self._writer.write(work, _do_nothing, patient=False)


class SqliteRequests:
    """Implements `ports.access.IdempotencyStore`."""

    def __init__(self, writer: SqliteWriter) -> None:
        self._writer = writer

    async def begin(self, request: IdempotentRequest, digest: bytes, at: Instant) -> StoredResponse:
        def work(transaction: Transaction) -> StoredResponse:
            if (found := _find_response(transaction.db, request)) is not None:
                return found
            transaction.db.execute(SQL["insert_request"], (*_key(request), digest, at))
            return StoredResponse(digest)

        return await self._writer.write(work, _do_nothing, patient=False)

    async def answer(self, request: IdempotentRequest, response: StoredResponse) -> None:
        def work(transaction: Transaction) -> None:
            transaction.db.execute(SQL["answer_request"], (response.status, response.body, *_key(request)))

        await self._writer.write(work, _do_nothing, patient=False)

    async def forget(self, before: Instant) -> None:
        def work(transaction: Transaction) -> None:
            transaction.db.execute(SQL["delete_old_requests"], (before,)).fetchall()

        await self._writer.write(work, _do_nothing, patient=False)


def _find_response(db: SqliteDatabase, asked: IdempotentRequest) -> StoredResponse | None:
    found = db.execute(SQL["request"], _key(asked)).fetchone()
    return None if found is None else StoredResponse(found[0], found[1], found[2] or b"")


def _key(asked: IdempotentRequest) -> tuple[str, str, str]:
    return asked.token_id or "", asked.route, asked.key


def _text(value: object) -> str | None:
    return None if value is None else _encode(value).decode()


def to_token_record(row: Any) -> TokenRecord:
    token_id, name, scopes, agents, created_at, expires_at, revoked_at, quotas, owner, visibility, *more = row
    multi_user, last_used_at = more
    return TokenRecord(
        token_id=token_id,
        name=name,
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


def _do_nothing(_: object) -> None:
    """Do nothing after the commit."""
