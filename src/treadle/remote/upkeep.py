"""Keeping up a home through the process that owns it."""

from collections.abc import Callable, Collection, Sequence

from treadle.domain.ids import SessionId, TokenId
from treadle.domain.memories import Memory, MemoryId, MemoryKind
from treadle.domain.users import LOCAL_USER, UserId
from treadle.operations.memories import Imported
from treadle.operations.memory_schemas import AssignBody, Brought, Pinning, Remembered
from treadle.operations.retention import Deleted, Pruned
from treadle.operations.schemas import Page, Prune
from treadle.operations.token_schemas import NewTokenView, TokenView, token_body, token_record
from treadle.operations.tokens import Minted, NewToken
from treadle.ports.access import TokenRecord
from treadle.ports.accounts import AgentState
from treadle.ports.memory import Assigned
from treadle.remote.connection import Connection


class RemoteTokens:
    """Implements `service.upkeep.TokenKeeping` over a connection."""

    def __init__(self, connection: Connection) -> None:
        self._ask = connection

    async def create(self, wanted: NewToken) -> Minted:
        made = await self._ask.post("/v1/tokens", NewTokenView, token_body(wanted))
        return Minted(token_record(made), made.token)

    async def list(self) -> Sequence[TokenRecord]:
        return [token_record(view) for view in (await self._ask.get("/v1/tokens", Page[TokenView])).items]

    async def revoke(self, token_id: TokenId) -> None:
        await self._ask.delete(f"/v1/tokens/{token_id}", object)


class RemoteMemories:
    """Implements `service.upkeep.MemoryKeeping` over a connection."""

    def __init__(self, connection: Connection) -> None:
        self._ask = connection

    async def add(
        self,
        agent: str,
        text: str,
        kind: MemoryKind = "long_term",
        pinned: bool = False,
        user: UserId = LOCAL_USER,
    ) -> Memory | None:
        wanted = Remembered(agent, text, kind, pinned, user)
        found = await self._ask.post("/v1/attached/memory", list[Memory], wanted)
        return found[0] if found else None

    async def find(self, memory_id: MemoryId) -> Memory:
        return await self._ask.get(f"/v1/attached/memory/{memory_id}", Memory)

    async def pin(self, memory_id: MemoryId, pinned: bool) -> None:
        await self._ask.post(f"/v1/memory/{memory_id}/pin", object, Pinning(pinned))

    async def forget(self, memory_ids: Sequence[MemoryId]) -> Sequence[Memory]:
        return await self._ask.post("/v1/attached/memory/forget", list[Memory], list(memory_ids))

    async def bring_in(
        self,
        data: bytes,
        agent: str | None = None,
        known_agents: Collection[str] = (),
        user: UserId | None = None,
    ) -> Imported:
        brought = Brought(data, agent, tuple(known_agents), user)
        return await self._ask.post("/v1/attached/memory/import", Imported, brought)

    async def assign(
        self,
        user: UserId,
        memory_ids: Sequence[MemoryId] | None = None,
        agent: str | None = None,
        from_user: UserId | None = None,
    ) -> Assigned:
        ids = None if memory_ids is None else tuple(memory_ids)
        return await self._ask.post("/v1/memory/assign", Assigned, AssignBody(user, ids, agent, from_user))


class RemoteHouse:
    """Implements `service.upkeep.HouseKeeping` over a connection."""

    def __init__(self, connection: Connection) -> None:
        self._ask = connection

    async def delete_session(self, session_id: SessionId, by: str) -> Deleted:
        return await self._ask.delete(f"/v1/sessions/{session_id}", Deleted)

    async def prune(
        self,
        older_than: float,
        agent: str | None,
        by: str,
        progress: Callable[[int, int], None] = lambda done, total: None,
    ) -> Pruned:
        return await self._ask.post("/v1/prune", Pruned, Prune(older_than, agent))


class RemoteStates:
    """Implements `service.upkeep.StateKeeping` over a connection."""

    def __init__(self, connection: Connection) -> None:
        self._ask = connection

    async def set_state(self, agent: str, state: AgentState, /) -> None:
        await self._ask.post(f"/v1/agents/{agent}/state", object, {"state": state})
