"""A question on the terminal, and the line that is typed. Ctrl-C and Ctrl-D are no answer."""

import asyncio
import sys

from treadle.surfaces.cli.process import Stop
from treadle.surfaces.cli.terminal import inert


class Prompt:
    """Asks on standard error and reads from standard input, without keeping the engine from its work."""

    def __init__(self, stop: Stop) -> None:
        self._stop = stop

    @staticmethod
    def is_possible() -> bool:
        """Whether somebody sits at both ends."""
        return bool(sys.stdin and sys.stdin.isatty() and sys.stderr.isatty())

    async def ask(self, question: str) -> str | None:
        """The line that was typed; None when there is no answer."""
        print(inert(question), end=" ", file=sys.stderr, flush=True)
        loop = asyncio.get_running_loop()
        typed: asyncio.Future[str] = loop.create_future()

        def read() -> None:
            if not typed.done():
                typed.set_result(sys.stdin.readline())

        loop.add_reader(sys.stdin.fileno(), read)
        stopping = asyncio.ensure_future(self._stop.asked.wait())
        try:
            await asyncio.wait((typed, stopping), return_when=asyncio.FIRST_COMPLETED)
        finally:
            loop.remove_reader(sys.stdin.fileno())
            stopping.cancel()
        line = typed.result() if typed.done() else ""
        if not line.endswith("\n"):
            print(file=sys.stderr)
        return line.strip() if line else None
