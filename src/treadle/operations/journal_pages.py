"""Reads journals: their first event, and long ones page by page."""

from collections.abc import AsyncGenerator

from treadle.domain.envelope import Event
from treadle.domain.events import RunQueued, StepStart
from treadle.domain.ids import RunId
from treadle.ports.journal import Journal

PAGE = 500
STEP_PAGE = 32
"""Events that are read first to find the beginning of the latest step."""


async def read_queued(run_id: RunId, journal: Journal) -> RunQueued:
    """Return the first event of a run."""
    [first] = await journal.read(run_id, 0, 1)
    assert isinstance(first.data, RunQueued), f"the first event of {run_id} is {first.type}"
    return first.data


async def read_stored_events(journal: Journal, run_id: RunId, after: int = 0) -> AsyncGenerator[Event, None]:
    """Yield the events of a run after a sequence that are in the journal now."""
    last = after
    while page := await journal.read(run_id, last, PAGE):
        for event in page:
            yield event
        last = page[-1].sequence


async def read_latest_step(journal: Journal, run_id: RunId, sequence: int) -> list[Event]:
    """Return the events of a run since its latest step began, and perhaps some before. Earlier events are not read.
    `sequence` is that of an event near the end of the journal."""
    events = [event async for event in read_stored_events(journal, run_id, sequence)]
    last, size = sequence, STEP_PAGE
    while last > 0 and not any(isinstance(event.data, StepStart) for event in events):
        first = max(0, last - size)
        events = [*await journal.read(run_id, first, last - first), *events]
        last, size = first, min(2 * size, PAGE)
    return events
