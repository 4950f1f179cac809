"""Reads long journals page by page."""

from collections.abc import AsyncGenerator

from treadle.domain.envelope import Event
from treadle.domain.ids import RunId
from treadle.ports.journal import Journal

PAGE = 500


async def read_stored_events(journal: Journal, run_id: RunId, after: int = 0) -> AsyncGenerator[Event, None]:
    """Yield the events of a run after a sequence that are in the journal now."""
    last = after
    while page := await journal.read(run_id, last, PAGE):
        for event in page:
            yield event
        last = page[-1].sequence
