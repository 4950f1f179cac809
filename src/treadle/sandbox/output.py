"""The output of a command: streamed, measured, and stored within a limit."""

import codecs
from collections import deque
from collections.abc import Callable


class Output:
    """The head and the tail of a byte stream, and its length."""

    def __init__(self, max_bytes: int, show: Callable[[str], None]) -> None:
        self._half_bytes = max_bytes // 2
        self._show = show
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_bytes = 0
        self.length = 0

    def feed(self, data: bytes) -> None:
        if self.length < 2 * self._half_bytes:
            self._show_text(self._decoder.decode(data))
        self.length += len(data)
        if missing := self._half_bytes - len(self._head):
            self._head += data[:missing]
            data = data[missing:]
        if data:
            self._tail.append(data)
            self._tail_bytes += len(data)
            while self._tail_bytes - len(self._tail[0]) >= self._half_bytes:
                self._tail_bytes -= len(self._tail.popleft())

    def end(self) -> None:
        self._show_text(self._decoder.decode(b"", final=True))

    def _show_text(self, text: str) -> None:
        if text:
            self._show(text)

    @property
    def text(self) -> str:
        """The stored text. Bytes that are not UTF-8 are replaced."""
        tail = b"".join(self._tail)[-self._half_bytes :]
        left_out = self.length - len(self._head) - len(tail)
        if left_out <= 0:
            return (bytes(self._head) + tail).decode("utf-8", "replace")
        head, rest = self._head.decode("utf-8", "replace"), tail.decode("utf-8", "replace")
        return f"{head}\n[... {left_out} bytes left out ...]\n{rest}"
