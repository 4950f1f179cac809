"""Sign-ins of browsers: creating them from a token or a one-time code, resolving their cookies and ending them.

A cookie is worth what its token is worth at the moment of each request: revoking the token ends the sign-in."""

import asyncio
import hashlib
import logging
import secrets
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import NamedTuple

from treadle.domain.access import OWNER, Principal
from treadle.domain.errors import StoreError
from treadle.domain.ids import Instant
from treadle.operations.token_service import OwnAccessChanges, TokenService
from treadle.ports.access import AccessChanges, SignIn, SignInStore
from treadle.ports.clock import Clock, Ids

logger = logging.getLogger(__name__)

SECRET_BYTES = 32
IDLE_SECONDS = 12 * 3600.0
"""A sign-in that is not used for this long ends."""
LONGEST_SECONDS = 7 * 24 * 3600.0
"""A sign-in ends this long after it began, used or not."""
CODE_SECONDS = 300.0
"""How long the code of a sign-in link can be used."""
TOUCH_SECONDS = 60.0
"""How often the last use of a sign-in is written, at most."""
FRESH_SECONDS = 2.0
"""How long a lookup is cached. Another process may have ended the sign-in in the meantime."""
MAX_CACHED = 1_000


class NewSignIn(NamedTuple):
    """A sign-in with its cookie, which only the browser keeps."""

    cookie: str
    principal: Principal


class SignInService:
    """Creates, resolves and ends sign-ins."""

    def __init__(self, store: SignInStore, tokens: TokenService, clock: Clock, ids: Ids) -> None:
        self._store = store
        self._tokens = tokens
        self._clock = clock
        self._ids = ids
        self._known: dict[bytes, tuple[float, SignIn]] = {}
        self._streams: dict[bytes, set[Callable[[], None]]] = {}
        self._watcher: asyncio.Task[None] | None = None
        self.changes: AccessChanges = OwnAccessChanges()
        """What ends access. Lookups that started before a change are not cached."""
        self._seen_changes = 0

    async def make_code(self) -> str:
        """Return a new code that signs in once as the owner of the home."""
        code = secrets.token_urlsafe(SECRET_BYTES)
        await self._store.add_code(_digest(code), self._clock.now() + CODE_SECONDS)
        return code

    async def begin_with_code(self, code: str) -> NewSignIn | None:
        """Sign in with a one-time code; None if it is unknown, used or expired."""
        if not await self._store.take_code(_digest(code), self._clock.now()):
            return None
        return await self._begin(OWNER)

    async def begin_with_token(self, secret: str) -> NewSignIn | None:
        """Sign in with an access token; None if it is unknown, expired or revoked."""
        principal = await self._tokens.principal(secret)
        return None if principal is None else await self._begin(principal)

    async def _begin(self, principal: Principal) -> NewSignIn:
        cookie, now = secrets.token_urlsafe(SECRET_BYTES), self._clock.now()
        await self._store.remove_old(now - IDLE_SECONDS, now - LONGEST_SECONDS)
        await self._store.add(SignIn(self._ids("sgn"), principal.token_id, now, now), _digest(cookie))
        return NewSignIn(cookie, principal)

    async def principal(self, cookie: str) -> Principal | None:
        """Return who a cookie stands for; None if its sign-in or its token has ended. Counts as a use."""
        digest, now = _digest(cookie), self._clock.now()
        sign_in = await self._find(digest)
        found = None if sign_in is None else _make_principal(sign_in, now)
        if sign_in is not None and found is not None and now - sign_in.used_at >= TOUCH_SECONDS:
            await self._store.touch(sign_in.sign_in_id, now)
            self._known.pop(digest, None)
            if sign_in.token is not None:
                self._tokens.note_use(sign_in.token, now)
        return found

    async def end(self, cookie: str) -> None:
        """Sign out. Streams of this sign-in are closed."""
        digest = _digest(cookie)
        if (sign_in := await self._find(digest)) is not None:
            await self._store.remove(sign_in.sign_in_id)
        self.changes.add()
        self._cut(digest)

    async def end_all(self, principal: Principal) -> int:
        """End all sign-ins of a token, or of the owner of the home. Return how many there were."""
        ended = await self._store.remove_all(principal.token_id)
        self.changes.add()
        await self._cut_ended()
        return ended

    @contextmanager
    def cut_when_invalid(self, cookie: str, cut: Callable[[], None]) -> Generator[None]:
        """Call `cut` if the sign-in ends while the block runs, for a stream that must end with it."""
        digest = _digest(cookie)
        cuts = self._streams.setdefault(digest, set())
        cuts.add(cut)
        if self._watcher is None:
            self._watcher = asyncio.create_task(self._watch(), name="treadle-sign-ins")
        try:
            yield
        finally:
            cuts.discard(cut)
            if not cuts:
                self._streams.pop(digest, None)

    async def close(self) -> None:
        if self._watcher is not None:
            self._watcher.cancel()

    async def _find(self, digest: bytes) -> SignIn | None:
        now = self._clock.monotonic()
        changes = self.changes.count()
        if changes != self._seen_changes:
            self._seen_changes = changes
            self._known.clear()
        looked_up, found = self._known.get(digest, (0.0, None))
        if found is not None and now - looked_up < FRESH_SECONDS:
            return found
        found = await self._store.find(digest)
        if found is not None and changes == self.changes.count():
            if len(self._known) >= MAX_CACHED:
                self._known.clear()
            self._known[digest] = (now, found)
        return found

    async def _watch(self) -> None:
        """Close the streams of sign-ins that have ended, here or in another process."""
        while self._streams:
            await asyncio.sleep(FRESH_SECONDS)
            try:
                await self._cut_ended()
            except StoreError as error:
                logger.warning("the sign-ins of open streams cannot be looked up: %s", error)
        self._watcher = None

    async def _cut_ended(self) -> None:
        for digest in tuple(self._streams):
            found = await self._find(digest)
            if found is None or _make_principal(found, self._clock.now()) is None:
                self._cut(digest)

    def _cut(self, digest: bytes) -> None:
        for cut in tuple(self._streams.get(digest, ())):
            cut()


def _make_principal(sign_in: SignIn, now: Instant) -> Principal | None:
    if now - sign_in.used_at >= IDLE_SECONDS or now - sign_in.created_at >= LONGEST_SECONDS:
        return None
    if sign_in.token_id is None:
        return OWNER
    token = sign_in.token
    return token.principal if token is not None and token.is_valid(now) else None


def _digest(secret: str) -> bytes:
    return hashlib.sha256(secret.encode("utf-8", "surrogatepass")).digest()
