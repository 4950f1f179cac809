"""Access tokens, and the stored responses that make HTTP requests idempotent."""

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Protocol

from msgspec import Meta, Struct

from treadle.domain.access import MAX_TOKEN_NAME_CHARACTERS, Principal, Scope, Visibility
from treadle.domain.ids import Instant, TokenId
from treadle.domain.quotas import Quotas
from treadle.domain.users import MAX_USER_CHARACTERS, USER_PATTERN, UserId


class CreateToken(Struct, frozen=True, forbid_unknown_fields=True):
    """A request to create an access token."""

    name: Annotated[str, Meta(min_length=1, max_length=MAX_TOKEN_NAME_CHARACTERS)]
    scopes: Annotated[tuple[Scope, ...], Meta(min_length=1, max_length=4)] = ("read", "run")
    agents: Annotated[tuple[str, ...], Meta(min_length=1, max_length=1000)] | None = None
    expires_at: datetime | None = None
    quotas: Quotas | None = None
    user: (
        Annotated[
            str,
            Meta(min_length=1, max_length=MAX_USER_CHARACTERS, extra_json_schema={"pattern": USER_PATTERN}),
        ]
        | None
    ) = None
    """The owner of what is begun with it; null: a user of its own, whose name is the id of the token."""
    visibility: Visibility | None = None
    """Whose sessions, runs and memories exist for it: of its `own` user, or of `all` users. Null: `own` for a token
    with the scope run alone, `all` for others."""
    multi_user: bool = False
    """It serves several people. A request names the one that it is for (`user`, or the header `X-Treadle-User`); a
    request that names none remembers nothing, and continues no session of them."""


class AccessChanges(Protocol):
    """Counts what ends access before its time, such as a revoked token or a sign-out, in all processes that share a
    port."""

    def count(self) -> int: ...

    def add(self) -> None: ...


class TokenRecord(Struct, frozen=True):
    """An access token as it is stored. The token itself is never stored, only its digest."""

    token_id: TokenId
    name: str
    scopes: tuple[Scope, ...]
    agents: tuple[str, ...] | None
    """The agents that the token can see; None means all."""
    created_at: Instant
    expires_at: Instant | None = None
    revoked_at: Instant | None = None
    quotas: Quotas | None = None
    owner: UserId | None = None
    """The user that the token was created for. None: the token is a user of its own."""
    visibility: Visibility = "all"
    multi_user: bool = False
    """It serves several people, and acts for the one that a request names."""
    last_used_at: Instant | None = None
    """Null: never. A use within a minute after another one is not recorded."""

    @property
    def user(self) -> UserId:
        """Return the owner of what is started with this token.

        A token without an owner is its own user. Token ids are unique, so two tokens never share data by accident.
        """
        return self.token_id if self.owner is None else self.owner

    def is_valid(self, now: Instant) -> bool:
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)

    @property
    def principal(self) -> Principal:
        return Principal(
            token_id=self.token_id,
            name=self.name,
            scopes=frozenset(self.scopes),
            agents=self.agents,
            quotas=self.quotas,
            user=self.user,
            visibility=self.visibility,
            multi_user=self.multi_user,
        )


class Tokens(Protocol):
    async def add(self, record: TokenRecord, digest: bytes) -> None: ...

    async def find(self, digest: bytes) -> TokenRecord | None:
        """Return the token with this digest, valid or not."""
        ...

    async def find_digest(self, token_id: TokenId) -> bytes | None:
        """Return the digest of a token, valid or not, or None if there is no such token."""
        ...

    async def list(self) -> Sequence[TokenRecord]:
        """Return all tokens, oldest first."""
        ...

    async def revoke(self, token_id: TokenId, at: Instant) -> bool:
        """Revoke a token. Return False if it does not exist or is revoked already."""
        ...

    async def touch(self, token_id: TokenId, at: Instant) -> None:
        """Record that a token was used. The latest use is stored."""
        ...


class SignIn(Struct, frozen=True):
    """A browser that has signed in. Its cookie is never stored, only the digest of the cookie."""

    sign_in_id: str
    token_id: TokenId | None
    """The token that it signed in with; None: it signed in as the owner of the home."""
    created_at: Instant
    used_at: Instant
    token: TokenRecord | None = None
    """The token as it is now; None if there is none."""


class SignInStore(Protocol):
    async def add(self, sign_in: SignIn, digest: bytes) -> None: ...

    async def find(self, digest: bytes) -> SignIn | None:
        """Return the sign-in whose cookie has this digest, with its token, valid or not."""
        ...

    async def touch(self, sign_in_id: str, at: Instant) -> None:
        """Record that a sign-in was used."""
        ...

    async def remove(self, sign_in_id: str) -> None: ...

    async def remove_all(self, token_id: TokenId | None) -> int:
        """Remove the sign-ins of a token, or of the owner of the home. Return how many there were."""
        ...

    async def remove_old(self, used_before: Instant, created_before: Instant) -> None: ...

    async def add_code(self, digest: bytes, expires_at: Instant) -> None:
        """Store the digest of a one-time code, and remove the codes that have expired."""
        ...

    async def take_code(self, digest: bytes, now: Instant) -> bool:
        """Remove a code. Return False if there is none, or if it has expired."""
        ...


class IdempotentRequest(Struct, frozen=True):
    """A request that must not be executed twice: who sent it, to which route, and with which key."""

    token_id: TokenId | None
    route: str
    key: str


class StoredResponse(Struct, frozen=True):
    """The response to an idempotent request."""

    digest: bytes
    """Digest of the request body."""
    status: int | None = None
    """None: no response is known, because the request is in progress or its process died."""
    body: bytes = b""


class IdempotencyStore(Protocol):
    async def begin(self, request: IdempotentRequest, digest: bytes, at: Instant) -> StoredResponse:
        """Record a request. If it is recorded already, return what is stored for it."""
        ...

    async def answer(self, request: IdempotentRequest, response: StoredResponse) -> None: ...

    async def forget(self, before: Instant) -> None:
        """Delete the requests that were recorded before this time."""
        ...
