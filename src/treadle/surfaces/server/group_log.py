"""The log of a process group: what all of its processes write, and what happens to them."""

import logging
import sys
from asyncio import StreamReader
from pathlib import Path

from treadle.surfaces.terminal.output import note
from treadle.surfaces.terminal.text import inert
from treadle.telemetry.log_setup import LOG_FILE
from treadle.telemetry.logs import PrivateLogFile, make_log_line

LOGGER = "treadle.processes"
READ_BYTES = 64 * 1024
MAX_LINE_BYTES = 1024 * 1024
"""A longer line is written in parts."""


class GroupLog:
    """Writes whole lines to standard error. What happens to processes is in the log file of the home as well."""

    def __init__(self, home: Path, *, json: bool) -> None:
        self._json = json
        self._file = PrivateLogFile(home / "logs" / LOG_FILE)
        self._file.setFormatter(logging.Formatter("%(message)s"))

    def report(self, text: str) -> None:
        """Write what happened to a process."""
        line = make_log_line(LOGGER, text)
        self._file.handle(logging.makeLogRecord({"msg": line}))
        if self._json:
            self._write(line)
        else:
            note(text)

    async def pass_on(self, number: int, output: StreamReader) -> None:
        """Write what a process writes, until it ends."""
        rest = b""
        while piece := await output.read(READ_BYTES):
            *lines, rest = (rest + piece).split(b"\n")
            if len(rest) > MAX_LINE_BYTES:
                lines.append(rest)
                rest = b""
            for line in lines:
                self._pass_on_line(number, line)
        if rest:
            self._pass_on_line(number, rest)

    def _pass_on_line(self, number: int, line: bytes) -> None:
        text = line.decode(errors="replace")
        if not self._json:
            self._write(f"[{number}] {text}")
        elif text.startswith("{"):
            self._write(text)
        elif text:
            self._write(make_log_line(LOGGER, inert(text), process=number))

    def _write(self, line: str) -> None:
        print(line, file=sys.stderr, flush=True)

    def close(self) -> None:
        self._file.close()
