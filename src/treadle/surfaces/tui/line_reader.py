"""Lines that the user types at a terminal which edits them itself (canonical mode)."""

import asyncio
import os
import sys
import termios
from collections.abc import Callable
from contextlib import suppress

READ_BYTES = 200_000
MAX_LINE_BYTES = 4095
"""A terminal of Linux passes on so much of a line and drops the rest."""
CONTINUED = b"\\"


class LineReader:
    """Reads lines from standard input. A line that ends with a backslash continues on the next one."""

    def __init__(self, report_cut: Callable[[], None]) -> None:
        self._report_cut = report_cut
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        self._rest = b""
        self._begun: list[bytes] = []
        """The lines before this one, which it continues."""

    def start(self) -> None:
        asyncio.get_running_loop().add_reader(sys.stdin.fileno(), self._read)

    def stop(self) -> None:
        asyncio.get_running_loop().remove_reader(sys.stdin.fileno())

    async def read(self) -> str | None:
        """Return the next line; None if the user leaves."""
        return await self._lines.get()

    def end(self) -> None:
        """Make the next read return None."""
        self._lines.put_nowait(None)

    def discard(self) -> None:
        """Forget lines that were not read yet: the rest of a pasted text whose beginning was wrong."""
        with suppress(termios.error, OSError):
            termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)
        self._rest, self._begun = b"", []
        while not self._lines.empty():
            self._lines.get_nowait()

    def _read(self) -> None:
        try:
            data = os.read(sys.stdin.fileno(), READ_BYTES)
        except OSError:  # the terminal is gone
            self.stop()
            data = b""
        if not data:  # Ctrl-D, which does not close a terminal
            self.end()
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self._add(line)

    def _add(self, line: bytes) -> None:
        if len(line) >= MAX_LINE_BYTES:
            self._begun = []
            self._report_cut()
        elif line.endswith(CONTINUED):
            self._begun.append(line.removesuffix(CONTINUED))
        else:
            whole, self._begun = b"\n".join([*self._begun, line]), []
            self._lines.put_nowait(whole.decode("utf-8", "replace"))
