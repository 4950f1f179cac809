"""Server-sent events over a raw socket: read to the last byte, and closed wherever a test requires."""

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import suppress
from typing import Any, NamedTuple


class Sent(NamedTuple):
    """One event as it came."""

    id: str | None
    data: Any

    @property
    def type(self) -> str:
        return self.data["type"]


class Wire:
    """One connection with a request for a stream on it. Nothing is read that the test does not ask for."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.status = 0
        self.comments = 0
        self._rest = b""

    @classmethod
    async def open(cls, port: int, path: str, token: str, last: str | None = None, limit: int = 2**16) -> "Wire":
        reader, writer = await asyncio.open_connection("127.0.0.1", port, limit=limit)
        lines = [
            f"GET {path} HTTP/1.1",
            "Host: localhost",
            f"Authorization: Bearer {token}",
            "Accept: text/event-stream",
            *([] if last is None else [f"Last-Event-ID: {last}"]),
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode())
        wire = cls(reader, writer)
        try:
            head = await reader.readuntil(b"\r\n\r\n")
        except BaseException:
            writer.transport.abort()
            raise
        wire.status = int(head.split(b" ", 2)[1])
        return wire

    async def events(self, most_bytes: int | None = None) -> AsyncGenerator[Sent, None]:
        """As they come, up to the end of the answer; or as many as are whole within so many bytes of it."""
        taken = 0
        while (size := int((await self.reader.readline()).strip() or b"0", 16)) > 0:
            piece = await self.reader.readexactly(size)
            await self.reader.readexactly(2)
            if most_bytes is not None and taken + size > most_bytes:
                piece = piece[: most_bytes - taken]
            taken += len(piece)
            *whole, self._rest = (self._rest + piece).split(b"\n\n")
            for event in whole:
                if (sent := self._event(event)) is not None:
                    yield sent
            if most_bytes is not None and taken >= most_bytes:
                return

    def _event(self, lines: bytes) -> Sent | None:
        found: dict[bytes, bytes] = {}
        for line in lines.split(b"\n"):
            if line.startswith(b":"):
                self.comments += 1
                continue
            name, _, value = line.partition(b": ")
            found[name] = value
        if b"data" not in found:
            return None
        identity = found.get(b"id")
        sent = Sent(None if identity is None else identity.decode(), json.loads(found[b"data"]))
        assert found[b"event"].decode() == sent.type, "a frame names its event"
        return sent

    async def close(self) -> None:
        self.writer.close()
        with suppress(ConnectionError):
            await self.writer.wait_closed()
