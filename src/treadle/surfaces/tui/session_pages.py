"""The past of a session, read backwards in pages: opening a long session costs as much as a short one."""

from contextlib import aclosing

from treadle.domain import events as e
from treadle.domain.envelope import Event
from treadle.domain.ids import RunId
from treadle.operations.event_source import EventSource
from treadle.operations.runs import RunView
from treadle.surfaces.tui.run_events import RunReader
from treadle.surfaces.tui.run_facts import RunFacts
from treadle.surfaces.tui.transcript import Item, SessionTranscript

PAGE_EVENTS = 120
"""About how many events a page has."""
OVERLAP_EVENTS = 80
"""How far before a page its first step is looked for."""
STARTS = (e.StepStart, e.UserMessage, e.MessageSteered, e.RunQueued)


class SessionPages:
    """Reads the runs of a session from the latest to the first."""

    def __init__(self, source: EventSource, runs: list[RunView]) -> None:
        self._source = source
        self._runs = runs
        self._until: int | None = None
        """The sequence at which the last page began, inside the last run of the list."""

    @property
    def has_more(self) -> bool:
        return bool(self._runs)

    async def read_page(self) -> tuple[list[Item], list[RunFacts]]:
        """Return the items of the next page, in the order of the session, and the facts of its runs."""
        items: list[Item] = []
        facts: list[RunFacts] = []
        count = 0
        while self._runs and count < PAGE_EVENTS:
            run = self._runs[-1]
            until = run.sequence if self._until is None else self._until
            begin = max(0, until - PAGE_EVENTS)
            after = max(0, begin - OVERLAP_EVENTS) if begin else 0
            events = await self._read(run.run_id, after, until)
            events, start = _cut_to_step(events, begin)
            part, found = _reduce(run.run_id, events)
            items[:0] = part
            facts.append(found)
            count += len(events)
            if start <= 1 or not events:
                self._runs.pop()
                self._until = None
            else:
                self._until = start - 1
        return items, facts

    async def _read(self, run_id: RunId, after: int, until: int) -> list[Event]:
        found: list[Event] = []
        async with aclosing(self._source.read_stored(run_id, after)) as events:
            async for event in events:
                if event.sequence > until:
                    break
                found.append(event)
        return found


def _cut_to_step(events: list[Event], begin: int) -> tuple[list[Event], int]:
    """Return the events from the last beginning of a step at or before `begin`, and the sequence of the first. A
    page that begins in the middle of a step would show results without their calls."""
    if not events or begin == 0:
        return events, 1
    index = 0
    for place, event in enumerate(events):
        if event.sequence > begin + 1 and index:
            break
        if isinstance(event.data, STARTS):
            index = place
    return events[index:], events[index].sequence


def _reduce(run_id: RunId, events: list[Event]) -> tuple[list[Item], RunFacts]:
    transcript = SessionTranscript()
    reader = RunReader(run_id, transcript)
    for event in events:
        reader.apply(event)
    return transcript.items, reader.facts
