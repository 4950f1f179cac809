"""Requests to another Treadle process, over its Unix socket or over TCP with a token. Problem responses become the
errors that they describe."""

from collections.abc import AsyncGenerator
from urllib.parse import urlencode

import aiohttp
import msgspec
from msgspec import Struct
from yarl import URL

from treadle.domain import errors
from treadle.domain.errors import StoreError, TreadleError, UsageError
from treadle.operations.operation import WireRequest

PROBLEM = "urn:treadle:problem:"


class ServerGone(StoreError):
    """The other process does not respond."""


class _Problem(Struct, frozen=True):
    type: str
    detail: str = ""
    resets_at: float | None = None


class Address(Struct, frozen=True):
    """A Unix socket, or a URL with a token."""

    socket: str | None = None
    url: str = "http://localhost"
    token: str | None = None


class Connection:
    """A connection to another process. Open it with `async with`."""

    def __init__(self, address: Address) -> None:
        self._address = address
        self._session: aiohttp.ClientSession | None = None

    async def __aenter__(self) -> "Connection":
        address = self._address
        headers = {} if address.token is None else {"Authorization": f"Bearer {address.token}"}
        connector = (
            aiohttp.TCPConnector(limit=0) if address.socket is None else aiohttp.UnixConnector(address.socket)
        )
        self._session = aiohttp.ClientSession(
            address.url,
            connector=connector,
            headers=headers,
            timeout=aiohttp.ClientTimeout(total=None, sock_connect=10),
            auto_decompress=False,
            trust_env=False,
        )
        return self

    async def __aexit__(self, *_: object) -> None:
        if self._session is not None:
            await self._session.close()

    async def send(self, method: str, request: WireRequest, key: str | None = None) -> bytes:
        """Send a request and return the body of the response. Raises the error that the server reports."""
        headers = {"Content-Type": "application/json"} if request.body is not None else {}
        if key is not None:
            headers["Idempotency-Key"] = key
        try:
            async with self._open.request(
                method, _url(request), data=request.body, headers=headers, allow_redirects=False
            ) as response:
                content = await response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise self._make_gone(error) from None
        if response.status >= 400:
            raise error_of(content, response.status)
        return content

    async def stream(self, request: WireRequest) -> AsyncGenerator[bytes, None]:
        """Yield the data of server-sent events."""
        try:
            async with self._open.get(_url(request), headers={"Accept": "text/event-stream"}) as response:
                if response.status >= 400:
                    raise error_of(await response.read(), response.status)
                rest = b""
                async for piece in response.content.iter_any():
                    *events, rest = (rest + piece).split(b"\n\n")
                    for event in events:
                        if (found := _data(event)) is not None:
                            yield found
        except (aiohttp.ClientError, OSError) as error:
            raise self._make_gone(error) from None

    async def is_alive(self) -> bool:
        """Return whether the process answers."""
        try:
            await self.send("GET", WireRequest("/healthz", {}, None))
        except ServerGone:
            return False
        return True

    def _make_gone(self, error: Exception) -> ServerGone:
        where = self._address.socket or self._address.url
        return ServerGone(
            f"The process behind {where} does not answer ({error}). Check whether it is still running."
        )

    @property
    def _open(self) -> aiohttp.ClientSession:
        assert self._session is not None, "a connection is opened with `async with`"
        return self._session


def error_of(content: bytes, status: int) -> TreadleError:
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


def _url(request: WireRequest) -> URL:
    """Return the path and the query, encoded once: aiohttp would decode a path that has a slash inside a name."""
    query = urlencode(request.query)
    return URL(f"{request.path}?{query}" if query else request.path, encoded=True)


def _data(lines: bytes) -> bytes | None:
    """Return the data of one event; None for a comment."""
    return next((line[6:] for line in lines.split(b"\n") if line.startswith(b"data: ")), None)
