"""Ends the UI after its terminal has gone without a signal, as when the other end of a pseudo-terminal is closed.
Reading from such a terminal returns at once, for ever: the UI would use a whole core."""

import os
import select
from collections.abc import Callable

CHECK_SECONDS = 2.0
_GONE = select.POLLHUP | select.POLLERR | select.POLLNVAL


class TerminalLoss:
    """Checks from time to time whether the terminal of this process is still there."""

    def __init__(self, leave: Callable[[], None], descriptor: int = 0) -> None:
        self._leave = leave
        self.is_watched = os.isatty(descriptor)
        """False without a terminal, as in tests."""
        self._poll = select.poll()
        self._poll.register(descriptor, 0)

    def check(self) -> None:
        """Leave if the terminal has gone. What is printed from then on is discarded."""
        if self.is_watched and any(found & _GONE for _, found in self._poll.poll(0)):
            self.is_watched = False
            nowhere = os.open(os.devnull, os.O_RDWR)
            for descriptor in (1, 2):
                os.dup2(nowhere, descriptor)
            os.close(nowhere)
            self._leave()
