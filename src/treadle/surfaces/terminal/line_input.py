"""What users type: messages, and answers to questions at the terminal."""

import asyncio
import os
import sys
import termios
from collections.abc import Generator
from contextlib import contextmanager, suppress

from treadle.domain.errors import SizeLimitExceeded, UsageError
from treadle.domain.messages import MESSAGE_LIMIT
from treadle.surfaces.terminal.process import Stop
from treadle.surfaces.terminal.text import inert

MAX_LINE_BYTES = 65536
MAX_MESSAGE_BYTES = 4 * MESSAGE_LIMIT + 1


class Prompt:
    """Asks on standard error and reads from standard input, without blocking the event loop."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop

    @staticmethod
    def is_possible() -> bool:
        """Return whether standard input and standard error are a terminal."""
        return bool(sys.stdin and sys.stdin.isatty() and sys.stderr.isatty())

    async def ask(self, question: str) -> str | None:
        """Return the line that the user types after the question is shown; None for Ctrl-C and Ctrl-D."""
        if self._stop.is_requested:
            return None
        _discard_typed()
        print(inert(question), end=" ", file=sys.stderr, flush=True)
        loop = asyncio.get_running_loop()
        typed: asyncio.Future[str] = loop.create_future()

        def read() -> None:
            if not typed.done():
                typed.set_result(_read_line())

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


@contextmanager
def hidden_typing() -> Generator[None]:
    """Do not show on the terminal what the user types meanwhile."""
    terminal = sys.stdin.fileno()
    before = termios.tcgetattr(terminal)
    quiet = [*before[:3], before[3] & ~termios.ECHO, *before[4:]]
    termios.tcsetattr(terminal, termios.TCSADRAIN, quiet)
    try:
        yield
    finally:
        termios.tcsetattr(terminal, termios.TCSADRAIN, before)
        print(file=sys.stderr)


def _discard_typed() -> None:
    """Discard what was typed before the question was shown: it does not answer it."""
    with suppress(termios.error):  # the terminal is gone, and reading will say so
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)


def _read_line() -> str:
    """Read one line without Python's buffer, which would keep the lines after it for the next question."""
    try:
        return os.read(sys.stdin.fileno(), MAX_LINE_BYTES).decode("utf-8", "replace")
    except OSError:  # the terminal is gone
        return ""


async def ask_yes_or_no(question: str) -> bool:
    """Ask a question that is answered with yes or no; no is the default. Ctrl-C raises KeyboardInterrupt."""
    with Stop() as stop:
        typed = await Prompt(stop).ask(f"{question} [y/N]")
        if stop.is_requested:
            raise KeyboardInterrupt
    return (typed or "").lower() in ("y", "yes")


def read_message(argument: str) -> str:
    """Return the message of an argument; `-` reads it from standard input."""
    if argument == "-":
        data = sys.stdin.buffer.read(MAX_MESSAGE_BYTES) if sys.stdin else b""
        if len(data) == MAX_MESSAGE_BYTES:
            raise SizeLimitExceeded(
                f"The message on standard input exceeds the limit of {MESSAGE_LIMIT} characters. Send it in parts."
            )
    else:
        data = os.fsencode(argument)
    try:
        message = data.decode("utf-8")
    except UnicodeDecodeError:
        raise UsageError("The message is not UTF-8 text. Convert it first, for example with iconv.") from None
    if not message.strip():
        raise UsageError("The message is empty. Write it after the options, or pipe it in with `-` as the message.")
    return message.removesuffix("\n")
