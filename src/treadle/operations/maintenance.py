"""What is kept up in a home beside its runs, whoever does it: this process, or the one that owns the home."""

from collections.abc import Callable, Collection, Sequence
from typing import Protocol

from treadle.domain.ids import SessionId, TokenId
from treadle.domain.memories import Memory, MemoryId, MemoryKind
from treadle.domain.users import LOCAL_USER, UserId
from treadle.operations.memories import Imported
from treadle.operations.retention import Deleted, Pruned
from treadle.operations.tokens import Minted, NewToken
from treadle.ports.access import TokenRecord
from treadle.ports.accounts import AgentState
from treadle.ports.memory import Assigned


class TokenKeeping(Protocol):
    async def create(self, wanted: NewToken) -> Minted: ...

    async def list(self) -> Sequence[TokenRecord]: ...

    async def revoke(self, token_id: TokenId) -> None: ...


class MemoryKeeping(Protocol):
    async def add(
        self,
        agent: str,
        text: str,
        kind: MemoryKind = "long_term",
        pinned: bool = False,
        user: UserId = LOCAL_USER,
    ) -> Memory | None: ...

    async def find(self, memory_id: MemoryId) -> Memory: ...

    async def pin(self, memory_id: MemoryId, pinned: bool) -> None: ...

    async def forget(self, memory_ids: Sequence[MemoryId]) -> Sequence[Memory]: ...

    async def bring_in(
        self,
        data: bytes,
        agent: str | None = None,
        known_agents: Collection[str] = (),
        user: UserId | None = None,
    ) -> Imported: ...

    async def assign(
        self,
        user: UserId,
        memory_ids: Sequence[MemoryId] | None = None,
        agent: str | None = None,
        from_user: UserId | None = None,
    ) -> Assigned: ...


class HouseKeeping(Protocol):
    async def delete_session(self, session_id: SessionId, by: str) -> Deleted: ...

    async def prune(
        self, older_than: float, agent: str | None, by: str, progress: Callable[[int, int], None] = ...
    ) -> Pruned: ...


class StateKeeping(Protocol):
    async def set_state(self, agent: str, state: AgentState, /) -> object: ...
