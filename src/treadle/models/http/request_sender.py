"""Send a request in one piece over a pooled connection of aiohttp.

A session of aiohttp checks every call for redirects, cookies, a proxy and uploads, which a model call never has,
and writes the body in a task. This module prepares the head once and writes it together with the body. A call costs
0.46 times the CPU with one token and 0.34 times with 100 (`python -m bench.http_client`). The path uses internals
of aiohttp: it is left out for versions that were not tried, and a canary test fails when that happens."""

import asyncio

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.helpers import TimerNoop
from aiohttp.http_writer import StreamWriter
from yarl import URL

from treadle.models.http.response_reader import AiohttpResponse, HttpResponse, ResponseReceiver

MAX_SINGLE_WRITE_BYTES = 1024 * 1024
"""Bytes of a body that are handed over at once: what the network does not take yet is kept twice meanwhile."""
NO_AIOHTTP_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=None)
"""Whoever calls keeps the time."""
TESTED_AIOHTTP_VERSIONS = ("3.14.",)
"""Versions of aiohttp whose internals this module was tried with."""
FACTORY_ATTRIBUTE = "_factory"
"""Where a connector of aiohttp keeps what makes its protocols; it has no public place for it."""
UNSUPPORTED_HEADERS = ("content-length", "transfer-encoding", "content-encoding", "expect", "connection", "cookie")
"""Headers that change how a request is sent."""


class DirectSender:
    """Posts whole bodies to one address, with the headers of a session."""

    def __init__(self, url: URL, session: aiohttp.ClientSession) -> None:
        assert session.connector is not None
        self._url = url
        self._session = session
        self._connector = session.connector
        self._loop = asyncio.get_running_loop()
        self._timer = TimerNoop()
        self._where = aiohttp.ClientRequest("POST", url, headers=session.headers, loop=self._loop, session=session)
        self._asked = self._where.request_info
        said = [f"{name}: {value}" for name, value in self._where.headers.items() if name != "Content-Length"]
        head = [f"POST {url.raw_path_qs} HTTP/1.1", *said, "Content-Length: "]
        self._head = "\r\n".join(head).encode()

    async def post(self, body: bytes) -> HttpResponse:
        """The answer, as soon as its head has come."""
        connection = await self._connector.connect(self._where, [], NO_AIOHTTP_TIMEOUT)
        protocol = connection.protocol
        assert isinstance(protocol, ResponseReceiver)
        try:
            if protocol.transport is None or protocol.transport.is_closing():
                raise aiohttp.ServerDisconnectedError
            begun = protocol.expect(connection)
            protocol.transport.write(b"%b%d\r\n\r\n%b" % (self._head, len(body), body))
            return await begun or AiohttpResponse(await self._started(connection, protocol))
        except BaseException:
            connection.close()
            raise

    async def _started(self, connection: Connection, protocol: ResponseReceiver) -> aiohttp.ClientResponse:
        """An answer that has begun, and that aiohttp takes apart."""
        response = self._response(protocol)
        try:
            await response.start(connection)
        except BaseException:
            response.close()
            raise
        return response

    def _response(self, protocol: ResponseHandler) -> aiohttp.ClientResponse:
        return aiohttp.ClientResponse(
            "POST",
            self._url,
            writer=None,  # it is written before anybody asks
            continue100=None,
            timer=self._timer,
            request_info=self._asked,
            traces=[],
            loop=self._loop,
            session=self._session,
            stream_writer=StreamWriter(protocol, self._loop),
        )


def can_send_directly(url: URL, session: aiohttp.ClientSession) -> bool:
    """Whether requests to that address can be posted so. The others are left to aiohttp, with its errors; and all
    of them where its insides may be others than those that were tried."""
    if not aiohttp.__version__.startswith(TESTED_AIOHTTP_VERSIONS) or not hasattr(
        session.connector, FACTORY_ATTRIBUTE
    ):
        return False
    sound = all(
        (name + value).isprintable() and name.lower() not in UNSUPPORTED_HEADERS
        for name, value in session.headers.items()
    )
    return sound and url.scheme in ("http", "https") and bool(url.raw_host) and not url.raw_user
