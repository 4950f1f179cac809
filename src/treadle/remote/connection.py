"""Requests to a server of ours: over its Unix socket, or over TCP with a token. Problems come back as the errors
that they were."""

from collections.abc import AsyncGenerator
from typing import Any, TypeVar

import aiohttp
import msgspec
from msgspec import Struct

from treadle.domain import errors
from treadle.domain.errors import StoreError, TreadleError, UsageError

PROBLEM = "urn:treadle:problem:"
Kind = TypeVar("Kind")


class ServerGone(StoreError):
    """The process that was asked does not answer, or not any more."""


class _Problem(Struct, frozen=True):
    type: str
    detail: str = ""
    resets_at: float | None = None


class Address(Struct, frozen=True):
    """Where to ask: a Unix socket; or a URL, and who is asking."""

    socket: str | None = None
    url: str = "http://localhost"
    token: str | None = None


class Connection:
    """Open it with `async with`."""

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

    async def get(self, path: str, kind: type[Kind], **query: object) -> Kind:
        return await self._ask("GET", path, kind, query)

    async def post(self, path: str, kind: type[Kind], body: object = None, key: str | None = None) -> Kind:
        return await self._ask("POST", path, kind, {}, body, key)

    async def delete(self, path: str, kind: type[Kind]) -> Kind:
        return await self._ask("DELETE", path, kind, {})

    async def _ask(
        self,
        method: str,
        path: str,
        kind: type[Kind],
        query: dict[str, Any],
        body: object = None,
        key: str | None = None,
    ) -> Kind:
        headers = {"Content-Type": "application/json"} if body is not None else {}
        if key is not None:
            headers["Idempotency-Key"] = key
        data = None if body is None else msgspec.json.encode(body)
        try:
            async with self._open.request(
                method, path, params=_said(query), data=data, headers=headers, allow_redirects=False
            ) as response:
                content = await response.read()
        except (aiohttp.ClientError, OSError) as error:
            raise self._gone(error) from None
        if response.status >= 400:
            raise error_of(content, response.status)
        return msgspec.json.decode(content or b"null", type=kind)

    async def stream(self, path: str, **query: object) -> AsyncGenerator[tuple[str | None, bytes], None]:
        """Server-sent events: the id of each, where it has one, and its data."""
        try:
            async with self._open.get(
                path, params=_said(query), headers={"Accept": "text/event-stream"}
            ) as response:
                if response.status >= 400:
                    raise error_of(await response.read(), response.status)
                rest = b""
                async for piece in response.content.iter_any():
                    *events, rest = (rest + piece).split(b"\n\n")
                    for event in events:
                        if (found := _event(event)) is not None:
                            yield found
        except (aiohttp.ClientError, OSError) as error:
            raise self._gone(error) from None

    def _gone(self, error: Exception) -> ServerGone:
        where = self._address.socket or self._address.url
        return ServerGone(f"The process behind {where} does not answer ({error}). Look whether it is still there.")

    @property
    def _open(self) -> aiohttp.ClientSession:
        assert self._session is not None, "a connection is opened with `async with`"
        return self._session


def error_of(content: bytes, status: int) -> TreadleError:
    """The error that a problem tells of."""
    try:
        problem = msgspec.json.decode(content, type=_Problem)
    except msgspec.DecodeError:
        return ServerGone(f"The server answered {status} and no word that could be read.")
    kind = getattr(errors, problem.type.removeprefix(PROBLEM), None)
    if isinstance(kind, type) and issubclass(kind, errors.QuotaExceeded | errors.InsufficientCredits):
        return kind(problem.detail, problem.resets_at)
    if isinstance(kind, type) and issubclass(kind, TreadleError):
        return kind(problem.detail)
    return UsageError(problem.detail) if status < 500 else ServerGone(problem.detail)


def _said(query: dict[str, Any]) -> dict[str, str]:
    return {
        name: str(value).lower() if isinstance(value, bool) else str(value)
        for name, value in query.items()
        if value is not None
    }


def _event(lines: bytes) -> tuple[str | None, bytes] | None:
    """One event; None for a comment."""
    found, data = None, None
    for line in lines.split(b"\n"):
        if line.startswith(b"id: "):
            found = line[4:].decode()
        elif line.startswith(b"data: "):
            data = line[6:]
    return None if data is None else (found, data)
