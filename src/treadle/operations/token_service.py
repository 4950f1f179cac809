"""Access tokens: creating, finding and revoking them. Revoking a token closes its open streams."""

import asyncio
import hashlib
import hmac
import logging
import re
import secrets
from base64 import urlsafe_b64encode
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager

from msgspec import Struct

from treadle.domain.access import SCOPES, Principal, default_visibility
from treadle.domain.errors import StoreError, UnknownToken, UsageError
from treadle.domain.ids import Instant, TokenId
from treadle.domain.users import UserId, check_user
from treadle.operations.schemas import instant
from treadle.ports.access import AccessChanges, CreateToken, TokenRecord, Tokens
from treadle.ports.clock import Clock, Ids

logger = logging.getLogger(__name__)

PREFIX = "trd_"
TICKET_PREFIX = "tkt_"
TICKET_SECONDS = 600
_EXPIRY = re.compile(r"[0-9]{1,12}")
SECRET_BYTES = 32
FRESH_SECONDS = 2.0
"""How long a lookup is cached. Another process may have revoked the token in the meantime."""
MAX_CACHED_TOKENS = 10_000
USE_SECONDS = 60.0
"""How often the use of a token is recorded."""


class CreatedToken(Struct, frozen=True):
    """A new token with its secret, which is shown only once."""

    record: TokenRecord
    secret: str


class OwnAccessChanges:
    """Implements `AccessChanges` for a process that shares its port with no other."""

    def __init__(self) -> None:
        self._count = 0

    def count(self) -> int:
        return self._count

    def add(self) -> None:
        self._count += 1


class TokenService:
    """Creates, resolves and revokes access tokens."""

    def __init__(self, tokens: Tokens, clock: Clock, ids: Ids) -> None:
        self._tokens = tokens
        self._clock = clock
        self._ids = ids
        self._known: dict[bytes, tuple[float, TokenRecord]] = {}
        self._used: dict[TokenId, Instant] = {}
        """When the use of a token was last recorded here."""
        self._touching: set[asyncio.Task[None]] = set()
        self._streams: dict[TokenId, tuple[bytes, set[Callable[[], None]]]] = {}
        self._watcher: asyncio.Task[None] | None = None
        self.changes: AccessChanges = OwnAccessChanges()
        """What ends access. Lookups that started before a change are not cached."""
        self._seen_changes = 0

    async def create(self, request: CreateToken) -> CreatedToken:
        """Create a token. Raise UsageError if the request is invalid."""
        _check(request, self._clock.now())
        await self._check_user(request.user)
        secret = f"{PREFIX}{secrets.token_urlsafe(SECRET_BYTES)}"
        record = TokenRecord(
            token_id=TokenId(self._ids("tok")),
            name=request.name.strip(),
            scopes=tuple(scope for scope in SCOPES if scope in request.scopes),
            agents=request.agents,
            created_at=self._clock.now(),
            expires_at=instant(request.expires_at),
            quotas=request.quotas,
            owner=request.user,
            visibility=request.visibility or default_visibility(request.scopes),
            multi_user=request.multi_user,
        )
        await self._tokens.add(record, _digest(secret))
        return CreatedToken(record, secret)

    async def _check_user(self, user: UserId | None) -> None:
        """Raise UsageError for an invalid user, and for a name that looks like that of a token but is not."""
        if user is None:
            return
        try:
            check_user(user)
        except ValueError as error:
            raise UsageError(f"The token cannot be for this user: {error}. No token was created.") from None
        if user.startswith("tok_") and user not in {record.user for record in await self._tokens.list()}:
            raise UsageError(
                f"The token cannot be for `{user}`: names that begin with tok_ belong to tokens, and no token "
                "has this one. No token was created. Use the id of a token, or another user."
            )

    async def list(self) -> Sequence[TokenRecord]:
        return await self._tokens.list()

    async def principal(self, secret: str) -> Principal | None:
        """Return the principal of a token; None if the token is unknown, expired or revoked."""
        if not secret.startswith(PREFIX):
            return None
        record, now = await self._record(_digest(secret)), self._clock.now()
        if record is None or not record.is_valid(now):
            return None
        self.note_use(record, now)
        return record.principal

    def note_use(self, record: TokenRecord, now: Instant) -> None:
        """Record the use of a token, at most once per minute. The request does not wait for it."""
        last = max(record.last_used_at or 0.0, self._used.get(record.token_id, 0.0))
        if 0.0 <= now - last < USE_SECONDS:
            return
        if len(self._used) >= MAX_CACHED_TOKENS:
            self._used.clear()
        self._used[record.token_id] = now
        task = asyncio.create_task(self._touch(record.token_id, now), name="treadle-token-use")
        self._touching.add(task)
        task.add_done_callback(self._touching.discard)

    async def _touch(self, token_id: TokenId, at: Instant) -> None:
        try:
            await self._tokens.touch(token_id, at)
        except StoreError as error:
            logger.warning("the use of %s was not recorded: %s", token_id, error)

    async def revoke(self, token_id: TokenId) -> None:
        """Revoke a token, immediately and permanently. Its streams are closed."""
        if not await self._tokens.revoke(token_id, self._clock.now()):
            known = {record.token_id: record for record in await self._tokens.list()}
            if token_id in known:
                raise UsageError(f"{token_id} (`{known[token_id].name}`) is revoked already.")
            raise UnknownToken(f"There is no token {token_id}. `treadle tokens list` shows all tokens.")
        self.changes.add()
        self._cut(token_id)

    @contextmanager
    def cut_when_invalid(self, secret: str, principal: Principal, cut: Callable[[], None]) -> Generator[None]:
        """Call `cut` if the token becomes invalid while the block runs, for a stream that must end with its
        token."""
        with self._hold(_digest(secret), principal, cut):
            yield

    @contextmanager
    def hold_ticket(self, digest: bytes, principal: Principal, cut: Callable[[], None]) -> Generator[None]:
        """Do the same for a stream that was opened with a ticket."""
        with self._hold(digest, principal, cut):
            yield

    @contextmanager
    def _hold(self, digest: bytes, principal: Principal, cut: Callable[[], None]) -> Generator[None]:
        if principal.token_id is None:
            yield
            return
        _, cuts = self._streams.setdefault(principal.token_id, (digest, set()))
        cuts.add(cut)
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._watch(), name="treadle-tokens")
        try:
            yield
        finally:
            cuts.discard(cut)
            if not cuts:
                self._streams.pop(principal.token_id, None)

    # ── Stream tickets ──

    async def make_ticket(self, token_id: TokenId, path: str) -> tuple[str, Instant]:
        """Return a ticket for one stream path, and when it expires.

        It is signed with the digest of the token, which every server of the database knows and no client does."""
        digest = await self._tokens.find_digest(token_id)
        if digest is None:
            raise UnknownToken(f"There is no token {token_id}.")
        expires_at = int(self._clock.now()) + TICKET_SECONDS
        return f"{TICKET_PREFIX}{token_id}.{expires_at}.{_sign(digest, expires_at, path)}", float(expires_at)

    async def read_ticket(self, ticket: str, path: str) -> tuple[Principal, bytes] | None:
        """Return the principal and the digest of the token that a ticket for this path was made for; None if the
        ticket is not valid, or its token no longer is."""
        token_id, _, rest = ticket.removeprefix(TICKET_PREFIX).partition(".")
        expiry, _, signature = rest.partition(".")
        if not ticket.startswith(TICKET_PREFIX) or not _EXPIRY.fullmatch(expiry):
            return None
        digest = await self._tokens.find_digest(TokenId(token_id))
        if digest is None or not hmac.compare_digest(_sign(digest, int(expiry), path).encode(), signature.encode()):
            return None
        record = await self._record(digest)
        now = self._clock.now()
        if record is None or not record.is_valid(now) or now >= int(expiry):
            return None
        return record.principal, digest

    async def close(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()
        await asyncio.gather(*self._touching)

    async def _record(self, digest: bytes) -> TokenRecord | None:
        now = self._clock.monotonic()
        changes = self.changes.count()
        if changes != self._seen_changes:
            self._seen_changes = changes
            self._known.clear()
        looked_up, record = self._known.get(digest, (0.0, None))
        if record is not None and now - looked_up < FRESH_SECONDS:
            return record
        record = await self._tokens.find(digest)
        if record is not None and changes == self.changes.count():
            if len(self._known) >= MAX_CACHED_TOKENS:
                self._known.clear()
            self._known[digest] = (now, record)
        return record

    async def _watch(self) -> None:
        """Close the streams of tokens that have expired, or that another process has revoked."""
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
        self._watcher = None

    def _cut(self, token_id: TokenId) -> None:
        _, cuts = self._streams.get(token_id, (b"", set[Callable[[], None]]()))
        for cut in tuple(cuts):
            cut()


def _check(request: CreateToken, now: Instant) -> None:
    name = request.name.strip()
    if not name or not name.isprintable():
        raise UsageError("A token needs a name of printable characters that says whose it is.")
    if request.agents is not None and "admin" in request.scopes:
        raise UsageError("An admin token is for all agents: remove the scope admin, or the limit to agents.")
    if request.visibility == "own" and "admin" in request.scopes:
        raise UsageError(
            "An admin token sees the data of all users: remove the scope admin, or the visibility own."
        )
    if request.multi_user and "admin" in request.scopes:
        raise UsageError(
            "An admin token sees the data of all users: remove the scope admin, or the service of several people."
        )
    if request.expires_at is not None and request.expires_at.timestamp() <= now:
        raise UsageError("The expiry of the token is in the past. Use a time in the future.")


def _sign(digest: bytes, expires_at: int, path: str) -> str:
    signed = hmac.new(digest, f"stream ticket\n{expires_at}\n{path}".encode(), hashlib.sha256).digest()
    return urlsafe_b64encode(signed).decode().rstrip("=")


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
