"""Follows a run: the events in its journal, the text that is being generated, and then all further events, with no
gaps or duplicates."""

from collections.abc import AsyncGenerator, Sequence

from msgspec import Struct

from treadle.core.fold import SILENT_TEXTS
from treadle.domain.envelope import Event
from treadle.domain.events import RunEnd, Token
from treadle.domain.ids import RunId
from treadle.engine.event_hub import EventHub, make_stream_reset
from treadle.engine.subscription import MAX_BACKLOG_EVENTS, MemoryAccount
from treadle.operations.journal_pages import PAGE
from treadle.ports.journal import Journal, RunRecord, Runs


class StreamReader(Struct, frozen=True):
    """A subscriber of a run."""

    run_id: RunId
    after: int = 0
    backlog: int = MAX_BACKLOG_EVENTS
    """How many events it may fall behind."""
    gather_seconds: float = 0.0
    """Seconds for which live events are collected before they are sent."""
    record: RunRecord | None = None
    """The run as the caller has just read it, if it had reached at least `after`; None: look it up."""
    memory: MemoryAccount | None = None
    """Counts the events that wait for the reader."""


async def follow_run(
    reader: StreamReader, hub: EventHub, journal: Journal, runs: Runs
) -> AsyncGenerator[Sequence[Event], None]:
    """Yield the events of a run after a sequence, in batches of what is available.

    Ends after `run_end`, or after a `stream_reset` if the reader was too slow."""
    run_id = reader.run_id
    with hub.subscribe(run_id, reader.backlog, reader.gather_seconds, reader.memory) as live:
        record = reader.record or await runs.record(run_id)
        origin, last, ended, more = record.origin, reader.after, record.outcome is not None, True
        live.last = max(live.last, min(last, record.sequence))
        while more and (page := await journal.read(run_id, last, PAGE)):
            last, ended = page[-1].sequence, ended or isinstance(page[-1].data, RunEnd)
            live.last = max(live.last, last)
            more = len(page) == PAGE
            yield page
        live.catching_up = False
        caught_up = hub.live_text(run_id)
        if caught_up is not None and (caught_up.request > last or not caught_up.text):
            caught_up = None  # its request is still to come, followed by all of its text
        if caught_up is not None:
            yield (hub.make_event(origin, caught_up.request, caught_up),)
        if ended:
            return
        while (batch := await live.take()) is not None:
            news: list[Event] = []
            for event in batch:
                if not event.durable:
                    if caught_up is None or not is_already_shown(event, caught_up):
                        news.append(event)
                elif event.sequence > last:
                    if event.sequence > last + 1:  # commits of another process are not published here
                        news += await journal.read(run_id, last, event.sequence - last - 1)
                    last = event.sequence
                    news.append(event)
                else:
                    news.clear()  # older than what the reader already has from the journal
                if ended := isinstance(event.data, RunEnd):
                    break  # later items are older, from another process
            if news:
                yield news
            if ended:
                return
        yield (hub.make_event(origin, last, make_stream_reset(last)),)


def is_already_shown(event: Event, caught_up: Token) -> bool:
    """Return whether a token is part of the text that a late reader received in one piece."""
    data = event.data
    return (
        isinstance(data, Token)
        and (data.request, data.attempt) == (caught_up.request, caught_up.attempt)
        and data.offset < len(caught_up.text)
    )


def is_silence(text: str) -> bool:
    """Return whether the text is the marker of an agent that has nothing to say."""
    return text.strip() in SILENT_TEXTS


def may_be_silence(text: str) -> bool:
    """Return whether the text may still become the marker of an agent that has nothing to say."""
    said = text.strip()
    return any(mark.startswith(said) for mark in SILENT_TEXTS)
