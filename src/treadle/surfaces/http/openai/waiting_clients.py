"""Counts the clients that wait for the answer of a run: only the last one that disconnects cancels it."""

from collections import Counter
from collections.abc import Generator
from contextlib import contextmanager

from treadle.domain.ids import RunId


class WaitingClients:
    """The clients of this process. Two wait for one run if the same results are sent twice at once."""

    def __init__(self) -> None:
        self._counts: Counter[RunId] = Counter()

    @contextmanager
    def wait(self, run_id: RunId) -> Generator[None]:
        """Count a client for as long as it waits."""
        self._counts[run_id] += 1
        try:
            yield
        finally:
            self._counts[run_id] -= 1
            if not self._counts[run_id]:
                del self._counts[run_id]

    def count(self, run_id: RunId) -> int:
        return self._counts[run_id]
