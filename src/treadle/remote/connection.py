"""Requests to another Treadle process, over its Unix socket or over TCP with a token. Problem responses become the
errors that they describe."""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import msgspec
from msgspec import Struct

from treadle.domain import errors
from treadle.domain.errors import StoreOwned, TreadleError, UsageError
from treadle.operations.operation import WireRequest, find_trace_parent
from treadle.remote.owner_watch import ATTACH_LIMIT_SECONDS, OwnerName, OwnerSilent, OwnerWatch, ServerGone
from treadle.remote.unix_http import SocketPresence, UnixResponse, probe_socket, request_over_socket
from treadle.system.certificates import import_aiohttp

if TYPE_CHECKING:
    import aiohttp

PROBLEM = "urn:treadle:problem:"


class _Problem(Struct, frozen=True):
    type: str
    detail: str = ""
    resets_at: float | None = None


class Address(Struct, frozen=True):
    """The Unix socket of the process that owns a home, or a URL with a token."""

    socket: str | None = None
    owner: OwnerName | None = None
    """The process behind the socket. A silent one is reported by this name, and given up after a while."""
    url: str = "http://localhost"
    token: str | None = None


def address_of(owned: StoreOwned) -> Address:
    """Return the address of the process that owns a home, which must have a socket."""
    return Address(owned.socket, OwnerName(owned.pid, owned.owner))


class Connection:
    """A connection to another process. Open it with `async with`."""

    def __init__(
        self,
        address: Address,
        tell: Callable[[str], None] = lambda text: None,
        limit_seconds: float = ATTACH_LIMIT_SECONDS,
    ) -> None:
        self._address = address
        self._tell = tell
        """Tells the user that the owner of the home is silent."""
        self._limit_seconds = limit_seconds
        """How long the owner of the home may take to answer for the first time."""
        self._watch: OwnerWatch | None = None
        self._session: aiohttp.ClientSession | None = None
        self._presence: SocketPresence | None = None

    async def __aenter__(self) -> "Connection":
        if self._address.socket is None:
            self._session = _open_session(self._address)
        else:
            self._presence = SocketPresence(self._address.socket)
            if self._address.owner is not None:
                probe = partial(probe_socket, self._address.socket)
                self._watch = OwnerWatch(self._address.owner, probe, self._tell, self._limit_seconds)
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()
        if self._presence is not None:
            self._presence.close()

    async def send(self, method: str, request: WireRequest, key: str | None = None) -> bytes:
        """Send a request and return the body of the response. Raises the error that the server reports."""
        headers = {"Content-Type": "application/json"} if request.body is not None else {}
        if key is not None:
            headers["Idempotency-Key"] = key
        if trace_parent := find_trace_parent():
            headers["traceparent"] = trace_parent
        async with self._request(method, request, headers) as response:
            content = await response.read()
        if response.status >= 400:
            raise make_error(content, response.status)
        return content

    async def stream(self, request: WireRequest) -> AsyncGenerator[bytes, None]:
        """Yield the data of server-sent events."""
        async with self._request("GET", request, {"Accept": "text/event-stream"}) as response:
            if response.status >= 400:
                raise make_error(await response.read(), response.status)
            rest = b""
            async for piece in _list_pieces(response):
                *events, rest = (rest + piece).split(b"\n\n")
                for event in events:
                    if (found := _extract_data(event)) is not None:
                        yield found

    @asynccontextmanager
    async def _request(
        self, method: str, request: WireRequest, headers: dict[str, str]
    ) -> AsyncGenerator["UnixResponse | aiohttp.ClientResponse", None]:
        """Give the response to a request. Raise ServerGone if the other process does not answer."""
        query = urlencode(request.query, doseq=True)
        target = f"{request.path}?{query}" if query else request.path
        try:
            if self._session is None:
                assert self._presence is not None, "a connection is opened with `async with`"
                await self._presence.ensure_connected()
                sent = request_over_socket(
                    self._presence.socket, method, target, headers, request.body, self._watch
                )
            else:
                sent = _request_over_tcp(self._session, method, target, headers, request.body)
            async with sent as response:
                yield response
        except OSError as error:
            raise self._make_gone(error) from None

    async def is_alive(self) -> bool:
        """Return whether the process answers. Raise OwnerSilent if it is there and stays silent."""
        try:
            await self.send("GET", WireRequest("/healthz", {}, None))
        except OwnerSilent:
            raise
        except ServerGone:
            return False
        return True

    def _make_gone(self, error: Exception) -> ServerGone:
        where = self._address.socket or self._address.url
        return ServerGone(
            f"The process behind {where} does not answer ({error}). Check whether it is still running."
        )


# ── Over TCP ──


def _open_session(address: Address) -> "aiohttp.ClientSession":
    import_aiohttp()  # not needed for a Unix socket, where commands must start fast
    import aiohttp

    return aiohttp.ClientSession(
        address.url,
        connector=aiohttp.TCPConnector(limit=0),
        headers={} if address.token is None else {"Authorization": f"Bearer {address.token}"},
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
        auto_decompress=False,
        trust_env=False,
    )


@asynccontextmanager
async def _request_over_tcp(
    session: "aiohttp.ClientSession", method: str, target: str, headers: dict[str, str], body: bytes | None
) -> AsyncGenerator["aiohttp.ClientResponse", None]:
    import aiohttp
    from yarl import URL

    url = URL(target, encoded=True)  # aiohttp would decode a path that has a slash inside a name
    try:
        async with session.request(method, url, data=body, headers=headers, allow_redirects=False) as response:
            yield response
    except aiohttp.ClientError as error:
        raise error if isinstance(error, OSError) else ConnectionError(str(error)) from None


def _list_pieces(response: "UnixResponse | aiohttp.ClientResponse") -> AsyncIterator[bytes]:
    return response.pieces() if isinstance(response, UnixResponse) else response.content.iter_any()


# ── Errors and events ──


def make_error(content: bytes, status: int) -> TreadleError:
    """Return the error that a problem response describes."""
    try:
        problem = msgspec.json.decode(content, type=_Problem)
    except msgspec.DecodeError:
        return ServerGone(f"The server answered {status} with a response that cannot be decoded.")
    kind = getattr(errors, problem.type.removeprefix(PROBLEM), None)
    if isinstance(kind, type) and issubclass(kind, errors.QuotaExceeded | errors.InsufficientCredits):
        return kind(problem.detail, problem.resets_at)
    if isinstance(kind, type) and issubclass(kind, TreadleError):
        return kind(problem.detail)
    return UsageError(problem.detail) if status < 500 else ServerGone(problem.detail)


def _extract_data(lines: bytes) -> bytes | None:
    """Return the data of one event; None for a comment."""
    return next((line[6:] for line in lines.split(b"\n") if line.startswith(b"data: ")), None)
