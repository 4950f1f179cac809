"""HTTP over a Unix socket. Commands use it to talk to the process that owns the home, and must start fast: an HTTP
library would cost several times as much as the request."""

import asyncio
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager

import httptools

from treadle.remote.owner_watch import OwnerWatch

PIECE_BYTES = 256 * 1024


class UnixResponse:
    """A response whose body is still arriving."""

    def __init__(self, reader: asyncio.StreamReader, watch: OwnerWatch | None) -> None:
        self._reader = reader
        self._watch = watch
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._has_headers = self._is_complete = False
        self.status = 0

    # ── Called by the parser ──

    def on_headers_complete(self) -> None:
        self._has_headers = True
        self.status = self._parser.get_status_code()

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        self._is_complete = True

    # ── For the caller ──

    async def start(self) -> None:
        """Read up to the end of the headers."""
        while not self._has_headers:
            await self._feed()

    async def read(self) -> bytes:
        """Return the whole body."""
        while not self._is_complete:
            await self._feed()
        return b"".join(self._take())

    async def pieces(self) -> AsyncGenerator[bytes, None]:
        """Yield the body as it arrives."""
        while True:
            for piece in self._take():
                yield piece
            if self._is_complete:
                return
            await self._feed()

    async def _feed(self) -> None:
        if self._watch is None:
            data = await self._read()
        else:
            data = await self._watch.wait(self._read)
            self._watch.on_answer()
        if not data:
            raise ConnectionResetError("the connection was closed in the middle of a response")
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            raise ConnectionError(f"the response is not HTTP: {error}") from None

    async def _read(self) -> bytes:
        return await self._reader.read(PIECE_BYTES)

    def _take(self) -> list[bytes]:
        taken, self._pieces = self._pieces, []
        return taken


@asynccontextmanager
async def request_over_socket(
    socket: str,
    method: str,
    target: str,
    headers: Mapping[str, str],
    body: bytes | None,
    watch: OwnerWatch | None = None,
) -> AsyncGenerator[UnixResponse, None]:
    """Send a request, and give its response. The connection is closed afterwards."""
    reader, writer = await asyncio.open_unix_connection(socket, limit=PIECE_BYTES)
    try:
        sent = {"Host": "localhost", "Connection": "close", **headers}
        if body is not None or method in ("POST", "PUT", "PATCH"):
            sent["Content-Length"] = str(len(body or b""))
        lines = [f"{method} {target} HTTP/1.1", *(f"{name}: {value}" for name, value in sent.items()), "", ""]
        writer.write("\r\n".join(lines).encode("ascii") + (body or b""))
        await (writer.drain() if watch is None else watch.wait(writer.drain))
        response = UnixResponse(reader, watch)
        await response.start()
        yield response
    finally:
        writer.close()


async def probe_socket(socket: str) -> None:
    """Return when the process behind a socket answers. Raise OSError if it is gone."""
    async with request_over_socket(socket, "GET", "/healthz", {}, None) as response:
        await response.read()


class SocketPresence:
    """A connection without requests. The process that owns a home does not end while it has connections, so it does
    not end between two requests of a command."""

    def __init__(self, socket: str) -> None:
        self.socket = socket
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ensure_connected(self) -> None:
        """Connect, unless there is a connection that the other process has not closed."""
        if self._streams is None or self._streams[0].at_eof():
            self.close()
            self._streams = await asyncio.open_unix_connection(self.socket)

    def close(self) -> None:
        if self._streams is not None:
            self._streams[1].close()
            self._streams = None
