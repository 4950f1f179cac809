"""Usage on PostgreSQL, by account and by agent, token, model and day; and the states of agents."""

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from treadle.domain.ids import Instant, TokenId
from treadle.domain.quotas import Shortage
from treadle.ports.accounts import ALL_USAGE, AgentState, Balance, Ceilings, Reserve, UsageFilter, Used
from treadle.stores.postgres.batch import AccountStanding
from treadle.stores.postgres.connection import escape_nul_json, unescape_nul
from treadle.stores.postgres.database import PostgresDatabase
from treadle.stores.usage_counts import decode_tags


class PostgresAccounts:
    """Implements `Accounts` and `AgentStates`. `now` overrides the server's clock unless it returns None."""

    def __init__(self, database: PostgresDatabase, now: Callable[[], Instant | None] = lambda: None) -> None:
        self._database = database
        self._now = now

    async def find_shortage(self, accounts: Sequence[Ceilings]) -> Shortage | None:
        wanted = Reserve(tuple(accounts), tokens=1)  # only to find the ceilings that tokens count against
        header = escape_nul_json(msgspec.json.encode(wanted)).decode()
        for row in await self._database.rows("standing", header, self._now()):
            account, kind, ceiling, used, reserved, wants, buckets = row
            if used >= ceiling:
                pairs = None if buckets is None else msgspec.json.decode(buckets, type=tuple[tuple[int, int], ...])
                return AccountStanding(
                    account=unescape_nul(account),
                    kind=kind,
                    ceiling=ceiling,
                    used=used,
                    reserved=reserved,
                    wants=wants,
                    buckets=pairs,
                ).to_shortage()
        return None

    async def balance(self, account: str) -> Balance:
        found = await self._database.row("balance", account, self._now())
        assert found is not None, "an aggregate always returns a row"
        cost, credits, used, reserved_cost, reserved_credits, reserved_tokens = found
        return Balance(
            account=account,
            cost=cost,
            credits=credits,
            tokens=int(used),
            reserved_cost=reserved_cost,
            reserved_credits=reserved_credits,
            reserved_tokens=reserved_tokens,
        )

    async def usage(self, filter: UsageFilter = ALL_USAGE) -> Sequence[Used]:
        found = await self._database.rows(
            "usage",
            None if filter.agents is None else list(filter.agents),
            filter.since,
            filter.until,
            filter.by,
            None if filter.owners is None else list(filter.owners),
            list(filter.tags),
            filter.token,
        )
        return [_to_used(*row) for row in found]

    async def state(self, agent: str) -> AgentState:
        """Read on every call, because any process may change it."""
        found = await self._database.row("agent_state", agent)
        return "running" if found is None else found[0]

    async def set_state(self, agent: str, state: AgentState) -> bool:
        return await self._database.row("set_agent_state", agent, state) is not None


def _to_used(agent: str, token: str, model: str, day: int, owner: str, tags: str, *sums: Any) -> Used:
    token_id = TokenId(unescape_nul(token)) if token else None
    return Used(unescape_nul(agent), token_id, unescape_nul(model), day, owner, decode_tags(tags), *sums)
