"""A line on a terminal that says what a command is waiting for."""

import sys
from collections.abc import Sequence
from types import TracebackType

from treadle.surfaces.terminal.text import can_overwrite, measure_terminal, one_line

_CLEAR = "\r\x1b[K"


class ProgressLine:
    """One line on standard error, overwritten by the next and cleared at the end. Shown on a terminal only."""

    def __init__(self, *, is_shown: bool) -> None:
        self._is_shown = is_shown and sys.stderr.isatty()
        self._is_overwritten = can_overwrite(sys.stderr)
        """False: the terminal may not know how to clear a line, so each is on a line of its own."""

    def __enter__(self) -> "ProgressLine":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._is_shown and self._is_overwritten:
            print(_CLEAR, end="", file=sys.stderr, flush=True)

    def show(self, words: str) -> None:
        if not self._is_shown:
            return
        line = one_line(words, measure_terminal(sys.stderr).columns - 1)
        if self._is_overwritten:
            print(f"{_CLEAR}{line}", end="", file=sys.stderr, flush=True)
        else:
            print(line, file=sys.stderr, flush=True)

    def show_probes(self, pending: Sequence[str]) -> None:
        """Say which providers have not answered yet."""
        if pending:
            self.show(f"probing {', '.join(pending)} …")
