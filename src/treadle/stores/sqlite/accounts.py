"""Usage on SQLite, by account and by agent, token, model and day; and the states of agents."""

from collections.abc import Sequence
from typing import Any

import msgspec

from treadle.domain.ids import TokenId
from treadle.domain.quotas import Shortage
from treadle.ports.accounts import (
    ALL_USAGE,
    HOUR_SECONDS,
    AgentState,
    Balance,
    Ceilings,
    Reserve,
    UsageFilter,
    Used,
)
from treadle.ports.clock import Clock
from treadle.stores.reservations import TOKEN_BUCKET_SECONDS, find_oldest_bucket
from treadle.stores.sqlite.connection import SQL, SqliteDatabase
from treadle.stores.sqlite.reservations import list_standings
from treadle.stores.sqlite.transaction import Transaction
from treadle.stores.sqlite.writer import SqliteWriter
from treadle.stores.usage_counts import decode_tags

ONE_TOKEN = Reserve((), tokens=1)
"""Only used to find the ceilings that tokens count against."""


class SqliteAccounts:
    """Implements `Accounts` and `AgentStates`."""

    def __init__(self, writer: SqliteWriter, clock: Clock) -> None:
        self._writer = writer
        self._clock = clock
        self._states: dict[str, AgentState] = {}
        """A cache; only the process that owns the database changes states."""

    async def find_shortage(self, accounts: Sequence[Ceilings]) -> Shortage | None:
        def work(db: SqliteDatabase) -> Shortage | None:
            for ceilings in accounts:
                for short in list_standings(db, ceilings, ONE_TOKEN, self._clock.now()):
                    if short.used >= short.ceiling:
                        return short
            return None

        return await self._writer.read(work)

    async def balance(self, account: str) -> Balance:
        def work(db: SqliteDatabase) -> Balance:
            cost, credits, tokens, reserved_cost, reserved_credits = db.execute(
                SQL["account"], (account,)
            ).fetchall()[0]
            since = find_oldest_bucket(self._clock.now(), TOKEN_BUCKET_SECONDS, HOUR_SECONDS)
            used = sum(amount for _, amount in db.execute(SQL["window"], (account, "tokens", since)))
            return Balance(
                account=account,
                cost=cost,
                credits=credits,
                tokens=used,
                reserved_cost=reserved_cost,
                reserved_credits=reserved_credits,
                reserved_tokens=tokens,
            )

        return await self._writer.read(work)

    async def usage(self, filter: UsageFilter = ALL_USAGE) -> Sequence[Used]:
        values = (
            _encode_names(filter.agents),
            filter.since,
            filter.until,
            filter.by,
            _encode_names(filter.owners),
            _encode_names(filter.tags),
            filter.token,
        )
        return await self._writer.read(lambda db: [_to_used(*row) for row in db.execute(SQL["usage"], values)])

    async def state(self, agent: str) -> AgentState:
        known = self._states.get(agent)
        if known is None:
            found = await self._writer.read(lambda db: db.execute(SQL["agent_state"], (agent,)).fetchone())
            known = self._states[agent] = "running" if found is None else found[0]
        return known

    async def set_state(self, agent: str, state: AgentState) -> bool:
        def work(transaction: Transaction) -> bool:
            return transaction.db.execute(SQL["set_agent_state"], (state, agent)).fetchone() is not None

        def then(is_known: bool) -> None:
            if is_known:
                self._states[agent] = state

        return await self._writer.write(work, then, patient=False)


def _encode_names(names: tuple[str, ...] | None) -> str | None:
    return None if names is None else msgspec.json.encode(names).decode()


def _to_used(agent: str, token: str, model: str, day: int, owner: str, tags: str, *sums: Any) -> Used:
    return Used(agent, TokenId(token) if token else None, model, day, owner, decode_tags(tags), *sums)
