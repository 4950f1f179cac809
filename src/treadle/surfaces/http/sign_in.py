"""Routes that set and delete the session cookie of the dashboard."""

import struct
import time
from collections import deque
from hashlib import sha256
from pathlib import Path
from typing import Annotated

import msgspec
from litestar import Response, delete, get, post
from litestar.params import Body

from treadle.operations.dashboard import BrowserSignIn, Identity, SignedInAs, make_identity
from treadle.operations.refusal import Refusal
from treadle.surfaces.http.auth import get_state
from treadle.surfaces.http.cookies import IDENTITY_PATH, SIGN_IN_PATH, make_cookie
from treadle.surfaces.http.dependencies import ApiRequest, get_context, get_services

MAX_FAILURES = 10
FAILURE_SECONDS = 60.0
"""Period for which failed attempts of one client are counted."""
MAX_PROXY_FAILURES = 100
"""The same for all clients of a proxy on this machine. It names them in X-Forwarded-For."""
MAX_PEERS = 10_000
_FAILURE = struct.Struct("<d16s")


class SignInLimit:
    """Counts failed attempts by peer, in this process."""

    def __init__(self) -> None:
        self._failures: dict[str, deque[float]] = {}

    def check(self, peer: str, forwarded: str = "") -> None:
        """Raise Refusal if the client has failed too often. `forwarded` is the client that a proxy names."""
        client, *proxy = _identify(peer, forwarded)
        if self._count(client) >= MAX_FAILURES or any(self._count(each) >= MAX_PROXY_FAILURES for each in proxy):
            raise Refusal(
                429, "TooManySignIns", "Too many failed attempts to sign in. Wait a minute, then try again."
            )

    def count_failure(self, peer: str, forwarded: str = "") -> None:
        if len(self._failures) >= MAX_PEERS:
            self._failures.clear()
        for key in _identify(peer, forwarded):
            self._failures.setdefault(key, deque()).append(time.monotonic())

    def _count(self, key: str) -> int:
        failures, now = self._failures.get(key), time.monotonic()
        while failures and now - failures[0] > FAILURE_SECONDS:
            failures.popleft()
        return len(failures) if failures else 0


class SharedSignInLimit(SignInLimit):
    """Counts failed attempts by peer in all processes behind a port. They append them to one file, with their
    times."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path

    def count_failure(self, peer: str, forwarded: str = "") -> None:
        entries = b"".join(_FAILURE.pack(time.monotonic(), _digest(key)) for key in _identify(peer, forwarded))
        is_full = self._path.exists() and self._path.stat().st_size >= MAX_PEERS * _FAILURE.size
        with self._path.open("wb" if is_full else "ab") as file:
            file.write(entries)

    def _count(self, key: str) -> int:
        digest, since = _digest(key), time.monotonic() - FAILURE_SECONDS
        try:
            written = self._path.read_bytes()
        except FileNotFoundError:
            return 0
        whole = written[: len(written) // _FAILURE.size * _FAILURE.size]
        return sum(at > since and whose == digest for at, whose in _FAILURE.iter_unpack(whole))


def _digest(key: str) -> bytes:
    return sha256(key.encode()).digest()[:16]


def _identify(peer: str, forwarded: str) -> tuple[str, ...]:
    """Return who tries to sign in, and the proxy on this machine that says so, if there is one. The last entry of
    the header is the one that the proxy itself has added. Proxies elsewhere are not believed."""
    name = forwarded.rpartition(",")[2].strip()[:64]
    is_local_proxy = bool(name) and (peer == "::1" or peer.startswith("127."))
    return (f"{peer} for {name}", f"{peer} for all") if is_local_proxy else (peer,)


@post(SIGN_IN_PATH, opt={"scope": None}, status_code=200, include_in_schema=False)
async def sign_in(request: ApiRequest, data: Annotated[BrowserSignIn, Body()]) -> Response[bytes]:
    """Serve `dashboard.sign_in`."""
    services, limit = get_services(request), _get_limit(request)
    peer = request.client.host if request.client else ""
    forwarded = request.headers.get("x-forwarded-for", "")
    limit.check(peer, forwarded)
    if data.code is not None:
        made = await services.sign_ins.begin_with_code(data.code)
    else:
        made = await services.sign_ins.begin_with_token((data.token or "").strip())
    if made is None:
        limit.count_failure(peer, forwarded)
        raise Refusal(
            403,
            "SignInFailed",
            "The sign-in link was used already or has expired. Make another with: treadle open"
            if data.code is not None
            else "The token is not valid: it is unknown, expired or revoked. Use another, or run: treadle open",
        )
    identity: Identity = make_identity(services.for_caller(made.principal, None))
    cookie = make_cookie(request.scope, made.cookie, _is_https(request))
    return Response(msgspec.json.encode(identity), media_type="application/json", headers={"Set-Cookie": cookie})


@get(IDENTITY_PATH, opt={"scope": None}, include_in_schema=False)
async def show_identity(request: ApiRequest) -> Response[bytes]:
    """Serve `dashboard.identity`."""
    known = "principal" in get_state(request.scope)
    found = SignedInAs(make_identity(get_context(request)) if known else None)
    return Response(msgspec.json.encode(found), media_type="application/json")


@delete(SIGN_IN_PATH, opt={"scope": None}, status_code=204, include_in_schema=False)
async def sign_out(request: ApiRequest) -> Response[None]:
    """Serve `dashboard.sign_out`."""
    if cookie := get_state(request.scope).get("cookie"):
        await get_services(request).sign_ins.end(cookie)
    header = make_cookie(request.scope, "", _is_https(request))
    return Response(None, status_code=204, headers={"Set-Cookie": header, "Clear-Site-Data": '"cache", "storage"'})


def _get_limit(request: ApiRequest) -> SignInLimit:
    state = request.app.state
    if not hasattr(state, "sign_in_limit"):
        state.sign_in_limit = SignInLimit()
    return state.sign_in_limit


def _is_https(request: ApiRequest) -> bool:
    """Return whether the browser uses TLS. Its Origin says so, also behind a proxy."""
    return request.headers.get("origin", "").startswith("https://")


ROUTES = [show_identity, sign_in, sign_out]
