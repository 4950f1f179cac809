"""Parses server-sent events as models send them, and the single document that servers send that do not stream.

Lines end in LF or CRLF; no provider sends the bare CR that the standard also allows. Only `data` fields are read:
every provider repeats the event name inside its payload."""

import re

from treadle.domain.limits import MAX_REPLY_EVENT_BYTES, MB

BOM = b"\xef\xbb\xbf"
"""The byte order mark that some servers send first."""
_KEEPALIVE = re.compile(rb"[\s:]*(?:ping|pong|keep[-_ ]?alive|heartbeat|processing)?[\s.]*", re.IGNORECASE)
"""A payload that only keeps the connection alive."""
_MAX_KEEPALIVE_BYTES = 24
"""Only shorter payloads can be keep-alives."""


class EventTooLarge(ValueError):
    """One event grew beyond MAX_REPLY_EVENT_BYTES."""

    def __init__(self) -> None:
        super().__init__(f"one event is larger than {MAX_REPLY_EVENT_BYTES // MB} MB")


class PayloadParser:
    """Extracts the `data` of each event of one stream. A line of bare JSON counts as an event of its own, because
    Ollama reports errors in mid-stream that way."""

    __slots__ = ("_data", "_partial", "_size", "_start")

    def __init__(self) -> None:
        self._start: bytes | None = b""
        """The part of a byte order mark received so far; None: the events have started."""
        self._data: list[bytes] = []
        self._partial: list[
            bytes
        ] = []  # pieces of the last line; joined once, so that a huge line takes linear time
        self._size = 0  # bytes since the last payload

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the payloads that this chunk completes."""
        if self._start is not None:
            chunk = self._begin(chunk)
        # A chunk usually consists of complete events of one line each. Then one split is enough.
        if chunk[:6] == b"data: " and chunk[-2:] == b"\n\n" and not self._data and not self._partial:
            payloads = chunk[6:-2].split(b"\n\ndata: ")
            if chunk.count(b"\n") == 2 * len(payloads) and b"\r" not in chunk:
                self._size = 0
                return _drop_keepalives(payloads)
        return self._feed_lines(chunk)

    def _begin(self, chunk: bytes) -> bytes:
        """Return the first bytes without a byte order mark."""
        assert self._start is not None
        chunk = self._start + chunk
        if len(chunk) < len(BOM) and BOM.startswith(chunk):
            self._start = chunk
            return b""
        self._start = None
        return chunk.removeprefix(BOM)

    def _feed_lines(self, chunk: bytes) -> list[bytes]:
        """Parse line by line, as the standard defines."""
        payloads: list[bytes] = []
        lines = chunk.split(b"\n")
        tail = lines.pop()
        if lines and self._partial:
            lines[0] = b"".join((*self._partial, lines[0]))
            self._partial.clear()
        data = self._data
        for line in lines:
            if line[-1:] == b"\r":
                line = line[:-1]
            if line[:6] == b"data: ":
                data.append(line[6:])
            elif line:
                self._take_unusual(line, payloads)
            elif data:
                payloads.append(data[0] if len(data) == 1 else b"\n".join(data))
                data.clear()
        if tail:
            self._partial.append(tail)
        self._size = len(tail) if payloads else self._size + len(chunk)
        if self._size > MAX_REPLY_EVENT_BYTES:
            raise EventTooLarge
        return _drop_keepalives(payloads)

    def end(self) -> list[bytes]:
        """Return what is left at the end of the stream. Some servers omit the last blank line."""
        return self.feed(b"\n\n")

    def _take_unusual(self, line: bytes, payloads: list[bytes]) -> None:
        if line[:5] == b"data:":
            self._data.append(line[5:])
        elif line[:1] == b"{":
            payloads.append(line)


def _drop_keepalives(payloads: list[bytes]) -> list[bytes]:
    others = payloads[:-1] if payloads and payloads[-1] == b"[DONE]" else payloads
    if others and len(min(others, key=len)) < _MAX_KEEPALIVE_BYTES:
        return [
            payload
            for payload in payloads
            if len(payload) >= _MAX_KEEPALIVE_BYTES or not _KEEPALIVE.fullmatch(payload)
        ]
    return payloads


class DocumentParser:
    """A body with a JSON content type: one payload, over any number of lines, complete at the end. If it starts
    like events, it is parsed as events."""

    __slots__ = ("_events", "_pieces", "_size")

    def __init__(self) -> None:
        self._events: PayloadParser | None = None
        self._pieces: list[bytes] = []
        self._size = 0

    def feed(self, chunk: bytes) -> list[bytes]:
        """Return the payloads that this chunk completes."""
        if self._events is not None:
            return self._events.feed(chunk)
        if not self._pieces:
            chunk = chunk.removeprefix(BOM).lstrip()  # some servers send blank lines to keep the connection alive
            if chunk and chunk[:1] != b"{":
                self._events = PayloadParser()
                return self._events.feed(chunk)
        if chunk:
            self._pieces.append(chunk)
            self._size += len(chunk)
            if self._size > MAX_REPLY_EVENT_BYTES:
                raise EventTooLarge
        return []

    def end(self) -> list[bytes]:
        """Return the document at the end of the body."""
        if self._events is not None:
            return self._events.end()
        return [b"".join(self._pieces)] if self._pieces else []
