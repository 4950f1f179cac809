"""A command in a real terminal: tests read the screen and type."""

import asyncio
import fcntl
import json
import os
import pty
import select
import struct
import termios
from collections.abc import Awaitable, Callable
from pathlib import Path
from subprocess import TimeoutExpired
from typing import Self

from tests.fake_endpoint import DONE, Answer, Behaviour, FakeEndpoint, delta, fragment
from tests.patience import HANG_SECONDS
from tests.surfaces.shell import Shell

CTRL_C, CTRL_D = "\x03", "\x04"
Script = Callable[[Callable[[FakeEndpoint], Awaitable[None]]], None]


def against(shell: Shell, *script: Behaviour) -> Script:
    """Run a test against an endpoint that follows a script, asked by a default agent that asks before it acts."""

    async def run(test: Callable[[FakeEndpoint], Awaitable[None]]) -> None:
        async with FakeEndpoint(*script) as server:
            shell.url = server.url
            shell.configure_careful()
            await test(server)

    return lambda test: asyncio.run(run(test))


def wants(tool: str, call_id: str = "c1", **arguments: object) -> Behaviour:
    """Return a model reply with a tool call."""
    return wants_raw(tool, json.dumps(arguments), call_id)


def wants_raw(tool: str, arguments: str, call_id: str = "c1") -> Behaviour:
    """Return a model reply with a tool call whose arguments are sent unchanged."""
    return Answer([delta(tool_calls=[fragment(0, call_id, tool, arguments)]), delta(finish="tool_calls"), DONE])


def files(folder: Path) -> dict[str, str]:
    """Return the names and texts of the files in a folder."""
    return {path.name: path.read_text() for path in folder.iterdir()}


class Terminal:
    """`async with Terminal(shell, "run", "hello", folder=…) as terminal`: a command at a terminal of its own."""

    def __init__(self, shell: Shell, *arguments: str, folder: Path, columns: int = 100, lines: int = 30) -> None:
        self._shell, self._arguments, self._folder = shell, arguments, folder
        self._size = struct.pack("HHHH", lines, columns, 0, 0)
        self.screen = ""
        self._seen = 0

    async def __aenter__(self) -> Self:
        self._ours, theirs = pty.openpty()
        fcntl.ioctl(theirs, termios.TIOCSWINSZ, self._size)
        self._changed = asyncio.Event()
        asyncio.get_running_loop().add_reader(self._ours, self._read)
        self.process = self._shell.start_at(theirs, self._folder, *self._arguments)
        os.close(theirs)
        return self

    async def __aexit__(self, *_: object) -> None:
        asyncio.get_running_loop().remove_reader(self._ours)
        os.close(self._ours)
        if self.process.poll() is None:
            self.process.kill()
            await asyncio.to_thread(self.process.wait)

    def _read(self) -> bool:
        """Read what is there, and return whether there may be more."""
        try:
            data = os.read(self._ours, 65536)
        except OSError:
            data = b""
        if not data:
            asyncio.get_running_loop().remove_reader(self._ours)
        self.screen += data.decode(errors="replace").replace("\r\n", "\n")
        self._changed.set()
        return bool(data)

    async def shows(self, words: str) -> None:
        """Wait for words after those that were waited for before."""
        try:
            async with asyncio.timeout(HANG_SECONDS):
                while (found := self.screen.find(words, self._seen)) < 0:
                    self._changed.clear()
                    await self._changed.wait()
        except TimeoutError:
            raise AssertionError(f"no {words!r} in: {self.screen}") from None
        self._seen = found + len(words)

    def types(self, line: str) -> None:
        os.write(self._ours, line.encode())

    async def ends(self) -> int:
        """Wait for the end of the command, and read what it has written before."""
        try:
            code = await asyncio.to_thread(self.process.wait, HANG_SECONDS)
        except TimeoutExpired:
            raise AssertionError(f"it does not end: {self.screen}") from None
        while select.select([self._ours], [], [], 0)[0] and self._read():
            pass
        return code
