"""Who may ask over HTTP, and what was answered to whom."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from treadle.domain.access import Principal, Scope, Visibility
from treadle.domain.ids import Instant, TokenId
from treadle.domain.quotas import Quotas
from treadle.domain.users import UserId


class TokenRecord(Struct, frozen=True):
    """What is known of an access token; the token itself is kept nowhere."""

    token_id: TokenId
    name: str
    scopes: tuple[Scope, ...]
    agents: tuple[str, ...] | None
    """The agents that exist for it; None: all."""
    created_at: Instant
    expires_at: Instant | None = None
    revoked_at: Instant | None = None
    quotas: Quotas | None = None
    owner: UserId | None = None
    """The user it was created for; None: one of its own."""
    visibility: Visibility = "all"

    @property
    def user(self) -> UserId:
        """Who owns what is begun with it. Its own id is nobody else's name: two tokens never share by accident."""
        return self.token_id if self.owner is None else self.owner

    def is_valid(self, now: Instant) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    @property
    def principal(self) -> Principal:
        return Principal(
            self.token_id,
            self.name,
            frozenset(self.scopes),
            self.agents,
            self.quotas,
            self.user,
            self.visibility,
        )


class Tokens(Protocol):
    async def add(self, record: TokenRecord, digest: bytes) -> None: ...

    async def find(self, digest: bytes) -> TokenRecord | None:
        """The token with this digest, valid or not."""
        ...

    async def list(self) -> Sequence[TokenRecord]:
        """All of them, the oldest first."""
        ...

    async def revoke(self, token_id: TokenId, at: Instant) -> bool:
        """Whether there was such a token that had not been revoked."""
        ...


class IdempotentRequest(Struct, frozen=True):
    """A request that must not be done twice: who sent it, where to, and under which key."""

    token_id: TokenId | None
    route: str
    key: str


class StoredResponse(Struct, frozen=True):
    """What was answered to it."""

    digest: bytes
    """Of the body of the request."""
    status: int | None = None
    """None: it was not answered, as far as is known."""
    body: bytes = b""


class IdempotencyStore(Protocol):
    async def begin(self, asked: IdempotentRequest, digest: bytes, at: Instant) -> StoredResponse:
        """Note that it was asked; or, where it was asked before, what was asked and answered then."""
        ...

    async def answer(self, asked: IdempotentRequest, answered: StoredResponse) -> None: ...

    async def forget(self, before: Instant) -> None:
        """Let go of what was asked before then."""
        ...
