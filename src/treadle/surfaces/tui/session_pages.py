"""The past of a session, read backwards in pages: opening a long session shows its end at once."""

from typing import NamedTuple

from treadle.domain.ids import RunId
from treadle.domain.transcript import Item, RunTotals
from treadle.operations.operation import Caller
from treadle.operations.runs import RunView
from treadle.operations.transcripts import RUN, ReadRunTranscript

PAGE_ITEMS = 60


class EarlierRun(NamedTuple):
    """What an earlier run has used."""

    run_id: RunId
    totals: RunTotals


class SessionPages:
    """Reads the runs of a session from the latest to the first."""

    def __init__(self, caller: Caller, runs: list[RunView]) -> None:
        self._caller = caller
        self._runs = runs
        self._before: str | None = None
        """Where the last page began, inside the last run of the list."""

    @property
    def has_more(self) -> bool:
        return bool(self._runs)

    async def read_page(self) -> tuple[list[Item], list[EarlierRun]]:
        """Return the items of the next page, in the order of the session, and its runs from the last to the
        first."""
        items: list[Item] = []
        past: list[EarlierRun] = []
        while self._runs and len(items) < PAGE_ITEMS:
            run_id = self._runs[-1].run_id
            wanted = ReadRunTranscript(run_id, self._before, PAGE_ITEMS - len(items))
            page = await self._caller.call(RUN, wanted)
            items[:0] = page.items
            if self._before is None:
                past.append(EarlierRun(run_id, page.totals))
            self._before = page.next
            if page.next is None:
                self._runs.pop()
        return items, past
