"""Sends a request in one write over a pooled aiohttp connection.

An aiohttp session checks every call for redirects, cookies, a proxy and uploads, which a model call never has, and
writes the body in a task. This module prepares the head once and writes it together with the body. A call costs
0.46 times the CPU with one token and 0.34 times with 100 (`python -m bench.http_client`). It uses aiohttp
internals, so it is disabled for untested versions, and a canary test fails when that happens."""

import asyncio

import aiohttp
from aiohttp.client_proto import ResponseHandler
from aiohttp.connector import Connection
from aiohttp.helpers import TimerNoop
from aiohttp.http_writer import StreamWriter
from yarl import URL

from treadle.models.http.response_reader import AiohttpResponse, HttpResponse, ResponseReceiver

MAX_SINGLE_WRITE_BYTES = 1024 * 1024
"""Larger bodies are not written at once: data that the network does not accept yet is held in memory twice."""
NO_AIOHTTP_TIMEOUT = aiohttp.ClientTimeout(total=None, sock_connect=None)
"""The caller enforces the time limits."""
TESTED_AIOHTTP_VERSIONS = ("3.14.",)
"""Versions of aiohttp whose internals this module was tested with."""
FACTORY_ATTRIBUTE = "_factory"
"""The attribute of an aiohttp connector that creates its protocols. There is no public one."""
UNSUPPORTED_HEADERS = ("content-length", "transfer-encoding", "content-encoding", "expect", "connection", "cookie")
"""Headers that change how a request is sent."""


class DirectSender:
    """Posts whole bodies to one URL, with the headers of a session."""

    def __init__(self, url: URL, session: aiohttp.ClientSession) -> None:
        assert session.connector is not None
        self._url = url
        self._session = session
        self._connector = session.connector
        self._loop = asyncio.get_running_loop()
        self._timer = TimerNoop()
        self._request = aiohttp.ClientRequest(
            "POST", url, headers=session.headers, loop=self._loop, session=session
        )
        self._request_info = self._request.request_info
        headers = [f"{name}: {value}" for name, value in self._request.headers.items() if name != "Content-Length"]
        head = [f"POST {url.raw_path_qs} HTTP/1.1", *headers, "Content-Length: "]
        self._head = "\r\n".join(head).encode()

    async def post(self, body: bytes) -> HttpResponse:
        """Return the response as soon as its head has arrived."""
        connection = await self._connector.connect(self._request, [], NO_AIOHTTP_TIMEOUT)
        protocol = connection.protocol
        assert isinstance(protocol, ResponseReceiver)
        try:
            if protocol.transport is None or protocol.transport.is_closing():
                raise aiohttp.ServerDisconnectedError
            stream = protocol.expect(connection)
            protocol.transport.write(b"%b%d\r\n\r\n%b" % (self._head, len(body), body))
            return await stream or AiohttpResponse(await self._start_response(connection, protocol))
        except BaseException:
            connection.close()
            raise

    async def _start_response(self, connection: Connection, protocol: ResponseReceiver) -> aiohttp.ClientResponse:
        """Return a response that has started and that aiohttp parses."""
        response = self._make_response(protocol)
        try:
            await response.start(connection)
        except BaseException:
            response.close()
            raise
        return response

    def _make_response(self, protocol: ResponseHandler) -> aiohttp.ClientResponse:
        return aiohttp.ClientResponse(
            "POST",
            self._url,
            writer=None,  # the request is already written
            continue100=None,
            timer=self._timer,
            request_info=self._request_info,
            traces=[],
            loop=self._loop,
            session=self._session,
            stream_writer=StreamWriter(protocol, self._loop),
        )


def can_send_directly(url: URL, session: aiohttp.ClientSession) -> bool:
    """Return whether requests to a URL can be sent this way. Other requests are left to aiohttp, with its errors;
    so are all requests if the version of aiohttp is untested."""
    if not aiohttp.__version__.startswith(TESTED_AIOHTTP_VERSIONS) or not hasattr(
        session.connector, FACTORY_ATTRIBUTE
    ):
        return False
    is_supported = all(
        (name + value).isprintable() and name.lower() not in UNSUPPORTED_HEADERS
        for name, value in session.headers.items()
    )
    return is_supported and url.scheme in ("http", "https") and bool(url.raw_host) and not url.raw_user
