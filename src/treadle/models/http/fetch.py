"""One bounded GET request: a time limit, a size limit for the body, and no redirects."""

import asyncio
import socket
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from functools import partial

import aiohttp
from aiohttp.abc import AbstractResolver, ResolveResult
from msgspec import Struct

from treadle.system.daemon_thread import run_in_daemon_thread

MAX_BODY_BYTES = 8 * 2**20


class FetchedBody(Struct, frozen=True):
    """An HTTP response."""

    status: int
    headers: Mapping[str, str]
    body: bytes
    is_whole: bool = True
    """False: the body exceeds the limit and was not read to its end."""


@asynccontextmanager
async def open_session() -> AsyncGenerator[aiohttp.ClientSession, None]:
    """Open a session for `fetch`. It stores no cookies, uses no proxy and decompresses no bodies."""
    connector = aiohttp.TCPConnector(limit=0, resolver=_DaemonResolver())
    async with aiohttp.ClientSession(
        connector=connector,
        cookie_jar=aiohttp.DummyCookieJar(),
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),
        auto_decompress=False,
    ) as session:
        yield session


async def fetch(
    session: aiohttp.ClientSession, url: str, headers: Mapping[str, str], timeout_seconds: float
) -> FetchedBody:
    """Return the response to a GET. Raise TimeoutError, aiohttp.ClientError, OSError or ValueError if it fails.

    A redirect is returned, not followed: following it would send the key in the headers to another host."""
    common = {"Accept": "application/json", "Accept-Encoding": "identity", "User-Agent": "treadle"}
    async with (
        asyncio.timeout(timeout_seconds),
        session.get(url, headers={**common, **headers}, allow_redirects=False) as response,
    ):
        body = bytearray()
        async for piece in response.content.iter_any():
            body += piece
            if len(body) > MAX_BODY_BYTES:
                return FetchedBody(response.status, response.headers, bytes(body[:MAX_BODY_BYTES]), is_whole=False)
        return FetchedBody(response.status, response.headers, bytes(body))


class _DaemonResolver(AbstractResolver):
    """Resolves names in daemon threads, which do not delay the end of the process."""

    async def resolve(
        self, host: str, port: int = 0, family: socket.AddressFamily = socket.AF_INET
    ) -> list[ResolveResult]:
        found = await run_in_daemon_thread(
            partial(socket.getaddrinfo, host, port, family=family, type=socket.SOCK_STREAM)
        )
        return [
            ResolveResult(
                hostname=host,
                host=str(address[0]),
                port=int(address[1]),
                family=kind,
                proto=protocol,
                flags=socket.AI_NUMERICHOST | socket.AI_NUMERICSERV,
            )
            for kind, _, protocol, _, address in found
        ]

    async def close(self) -> None:
        pass
