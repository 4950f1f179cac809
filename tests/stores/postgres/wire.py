"""A proxy between a store and its server that tests can cut at any byte."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

SOCKET = ".s.PGSQL.5432"


class Wire:
    """Passes on what both sides say. Connections that are cut are aborted on both sides."""

    def __init__(self, server: str) -> None:
        self._server = server
        self._open: set[asyncio.StreamWriter] = set()
        self.down = False
        """No connection gets through."""
        self.on_request: Callable[[bytes], bool] = lambda _: False
        """Whether what the store is about to say never gets to the server: the connection is cut instead."""
        self.on_reply: Callable[[bytes], bool] = lambda _: False
        """The same for what the server answers, and has done."""
        self.holding = False
        """What the store says is held back until this is over."""
        self.refused = 0
        """Number of connection attempts while none got through."""
        self.held = 0
        """How often something was held back."""

    async def connected(self, store: asyncio.StreamReader, to_store: asyncio.StreamWriter) -> None:
        if self.down:
            self.refused += 1
            to_store.transport.abort()
            return
        server, to_server = await asyncio.open_unix_connection(self._server)
        pair = {to_store, to_server}
        self._open |= pair
        try:
            await asyncio.gather(
                self._pass_on(store, to_server, lambda data: self.on_request(data), pair),
                self._pass_on(server, to_store, lambda data: self.on_reply(data), pair),
            )
        finally:
            self._abort(pair)
            self._open -= pair

    async def _pass_on(
        self,
        source: asyncio.StreamReader,
        target: asyncio.StreamWriter,
        cuts: Callable[[bytes], bool],
        pair: set[asyncio.StreamWriter],
    ) -> None:
        with suppress(OSError):
            while data := await source.read(2**16):
                if cuts(data):
                    break
                self.held += self.holding
                while self.holding:  # noqa: ASYNC110 -- only a test changes it
                    await asyncio.sleep(0.01)
                target.write(data)
                await target.drain()
        self._abort(pair)

    def cut(self) -> None:
        """Cut all connections."""
        self._abort(self._open)

    def _abort(self, writers: set[asyncio.StreamWriter]) -> None:
        for writer in writers:
            writer.transport.abort()


@asynccontextmanager
async def wire(url: str, folder: Path) -> AsyncGenerator[tuple[str, Wire], None]:
    """Yield a URL that leads to the same database through a proxy, and the proxy."""
    parts = urlsplit(url)
    [host] = parse_qs(parts.query)["host"]
    between = Wire(f"{host}/{SOCKET}")
    server = await asyncio.start_unix_server(between.connected, folder / SOCKET)
    try:
        yield parts._replace(query=f"host={folder}").geturl(), between
    finally:
        server.close()
        between.cut()
        await asyncio.sleep(0.01)
