"""Access tokens: creating, finding and revoking them. A revoked token loses its open streams."""

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from msgspec import Struct

from treadle.domain.access import SCOPES, Principal, Scope, Visibility, default_visibility
from treadle.domain.errors import StoreError, UnknownToken, UsageError
from treadle.domain.ids import Instant, TokenId
from treadle.domain.quotas import Quotas
from treadle.domain.users import UserId, check_user
from treadle.operations.tokens import LONGEST_NAME
from treadle.ports.access import TokenRecord, Tokens
from treadle.ports.clock import Clock, Ids

logger = logging.getLogger(__name__)

PREFIX = "trd_"
SECRET_BYTES = 32
FRESH_SECONDS = 2.0
"""For so long what was looked up is taken to be so still; another process may have revoked it meanwhile."""
MOST_KNOWN = 10_000


class NewToken(Struct, frozen=True):
    """What a token is to allow."""

    name: str
    scopes: tuple[Scope, ...] = ("read", "run")
    agents: tuple[str, ...] | None = None
    expires_at: Instant | None = None
    quotas: Quotas | None = None
    user: UserId | None = None
    """Who owns what is begun with it; None: a user of its own."""
    visibility: Visibility | None = None
    """None: `own` for a token that may only run, `all` for others."""


class Minted(Struct, frozen=True):
    """A new token, with the one sight of it that anybody will ever have."""

    record: TokenRecord
    secret: str


class TokenService:
    """Who may ask."""

    def __init__(self, tokens: Tokens, clock: Clock, ids: Ids) -> None:
        self._tokens = tokens
        self._clock = clock
        self._ids = ids
        self._known: dict[bytes, tuple[float, TokenRecord]] = {}
        self._streams: dict[TokenId, tuple[bytes, set[Callable[[], None]]]] = {}
        self._watching: asyncio.Task[None] | None = None
        self._revoked = 0
        """How often a token was taken back: what was looked up before then is not kept."""

    async def create(self, wanted: NewToken) -> Minted:
        """Make a token. Raises UsageError for one that makes no sense."""
        _check(wanted, self._clock.now())
        await self._check_user(wanted.user)
        secret = f"{PREFIX}{secrets.token_urlsafe(SECRET_BYTES)}"
        record = TokenRecord(
            TokenId(self._ids("tok")),
            wanted.name.strip(),
            tuple(scope for scope in SCOPES if scope in wanted.scopes),
            wanted.agents,
            self._clock.now(),
            wanted.expires_at,
            quotas=wanted.quotas,
            owner=wanted.user,
            visibility=wanted.visibility or default_visibility(wanted.scopes),
        )
        await self._tokens.add(record, _digest(secret))
        return Minted(record, secret)

    async def _check_user(self, user: UserId | None) -> None:
        """Raise UsageError for what cannot be a user, and for what looks like a token's own user and is none."""
        if user is None:
            return
        try:
            check_user(user)
        except ValueError as error:
            raise UsageError(f"The token cannot be for this user: {error}. No token was created.") from None
        if user.startswith("tok_") and user not in {record.user for record in await self._tokens.list()}:
            raise UsageError(
                f"The token cannot be for `{user}`: names that begin with tok_ are those of tokens, and no token "
                "has this one. No token was created. Name the id of a token, or another user."
            )

    async def list(self) -> Sequence[TokenRecord]:
        return await self._tokens.list()

    async def principal(self, secret: str) -> Principal | None:
        """Return the principal of a token; None if the token is unknown, expired or revoked."""
        if not secret.startswith(PREFIX):
            return None
        record = await self._record(_digest(secret))
        return record.principal if record is not None and record.is_valid(self._clock.now()) else None

    async def revoke(self, token_id: TokenId) -> None:
        """Take a token back, at once and for good; its streams are cut."""
        if not await self._tokens.revoke(token_id, self._clock.now()):
            known = {record.token_id: record for record in await self._tokens.list()}
            if token_id in known:
                raise UsageError(f"{token_id} (`{known[token_id].name}`) is revoked already.")
            raise UnknownToken(f"There is no token {token_id}. `treadle tokens list` shows those there are.")
        self._revoked += 1
        self._known.clear()
        self._cut(token_id)

    @contextmanager
    def held_open(self, secret: str, principal: Principal, cut: Callable[[], None]) -> Generator[None]:
        """While a stream is open that must end with its token: then `cut` is called."""
        if principal.token_id is None:
            yield
            return
        _, cuts = self._streams.setdefault(principal.token_id, (_digest(secret), set()))
        cuts.add(cut)
        if self._watching is None:
            self._watching = asyncio.create_task(self._watch(), name="treadle-tokens")
        try:
            yield
        finally:
            cuts.discard(cut)
            if not cuts:
                self._streams.pop(principal.token_id, None)

    async def close(self) -> None:
        if self._watching is not None:
            self._watching.cancel()

    async def _record(self, digest: bytes) -> TokenRecord | None:
        now = self._clock.monotonic()
        looked_up, record = self._known.get(digest, (0.0, None))
        if record is not None and now - looked_up < FRESH_SECONDS:
            return record
        revoked = self._revoked
        record = await self._tokens.find(digest)
        if record is not None and revoked == self._revoked:
            if len(self._known) >= MOST_KNOWN:
                self._known.clear()
            self._known[digest] = (now, record)
        return record

    async def _watch(self) -> None:
        """Cut the streams of tokens that have expired, or that another process has revoked."""
        while self._streams:
            await asyncio.sleep(FRESH_SECONDS)
            for token_id, (digest, _) in tuple(self._streams.items()):
                try:
                    record = await self._record(digest)
                except StoreError as error:
                    logger.warning("the tokens of open streams cannot be looked up: %s", error)
                    break
                if record is None or not record.is_valid(self._clock.now()):
                    self._cut(token_id)
        self._watching = None

    def _cut(self, token_id: TokenId) -> None:
        _, cuts = self._streams.get(token_id, (b"", set[Callable[[], None]]()))
        for cut in tuple(cuts):
            cut()


def _check(wanted: NewToken, now: Instant) -> None:
    name = wanted.name.strip()
    if not name or len(name) > LONGEST_NAME or not name.isprintable():
        raise UsageError(f"A token needs a name of 1 to {LONGEST_NAME} characters that can be seen: whose is it?")
    if not wanted.scopes:
        raise UsageError(f"A token needs at least one scope of {', '.join(SCOPES)}.")
    if wanted.agents is not None and not wanted.agents:
        raise UsageError("A token that is limited to agents needs the name of at least one.")
    if wanted.agents is not None and "admin" in wanted.scopes:
        raise UsageError("An admin token is for all agents: take away the scope admin, or the limit to agents.")
    if wanted.visibility == "own" and "admin" in wanted.scopes:
        raise UsageError(
            "An admin token sees what all users have: take away the scope admin, or the visibility own."
        )
    if wanted.expires_at is not None and wanted.expires_at <= now:
        raise UsageError("The token would have expired already; give it a time in the future.")


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
