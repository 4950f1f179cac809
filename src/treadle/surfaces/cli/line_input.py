"""A question on the terminal, and the line that is typed after it. Ctrl-C and Ctrl-D are no answer."""

import asyncio
import os
import sys
import termios
from contextlib import suppress

from treadle.surfaces.cli.process import Stop
from treadle.surfaces.cli.terminal import inert

_LONGEST_LINE = 65536


class Prompt:
    """Asks on standard error and reads from standard input, without keeping the engine from its work."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop

    @staticmethod
    def is_possible() -> bool:
        """Whether somebody sits at both ends."""
        return bool(sys.stdin and sys.stdin.isatty() and sys.stderr.isatty())

    async def ask(self, question: str) -> str | None:
        """The line that was typed after the question was shown; None when there is no answer."""
        if self._stop.is_heard:
            return None
        _drop_what_was_typed()
        print(inert(question), end=" ", file=sys.stderr, flush=True)
        loop = asyncio.get_running_loop()
        typed: asyncio.Future[str] = loop.create_future()

        def read() -> None:
            if not typed.done():
                typed.set_result(_line())

        loop.add_reader(sys.stdin.fileno(), read)
        stopping = [asyncio.ensure_future(event.wait()) for event in (self._stop.asked, self._stop.unanswered)]
        try:
            await asyncio.wait((typed, *stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            loop.remove_reader(sys.stdin.fileno())
            for waiting in stopping:
                waiting.cancel()
        line = typed.result() if typed.done() else ""
        if not line.endswith("\n"):  # Ctrl-D, perhaps in the middle of a line
            print(file=sys.stderr)
            return None
        return line.strip()


def _drop_what_was_typed() -> None:
    """What was typed before a question was seen is no answer to it."""
    with suppress(termios.error):  # the terminal is gone, and reading will say so
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def _line() -> str:
    """One line, past Python's own buffer, which would keep the lines behind it for the next question."""
    try:
        return os.read(sys.stdin.fileno(), _LONGEST_LINE).decode("utf-8", "replace")
    except OSError:  # the terminal is gone
        return ""
