"""Following a run: what is in its journal, what is being said now, and then all that comes, without a gap."""

from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing

from msgspec import Struct

from treadle.core.fold import SILENT_TEXTS
from treadle.domain.envelope import Event
from treadle.domain.events import RunEnd, StreamReset, Token
from treadle.domain.ids import RunId
from treadle.engine.event_hub import EventHub, make_stream_reset
from treadle.engine.subscription import MAX_BACKLOG_EVENTS
from treadle.operations.journal_pages import PAGE
from treadle.operations.operation import EventSource
from treadle.ports.journal import Journal, RunRecord, Runs


class Reader(Struct, frozen=True):
    """Whoever follows a run."""

    run_id: RunId
    after: int = 0
    backlog: int = MAX_BACKLOG_EVENTS
    """How many events it may be behind."""
    patience: float = 0.0
    """Seconds for which it lets live events gather."""
    record: RunRecord | None = None
    """The run as the reader has just seen it, when it had got at least as far as `after`; None: it is looked up."""


async def followed(
    reader: Reader, hub: EventHub, journal: Journal, runs: Runs
) -> AsyncGenerator[Sequence[Event], None]:
    """The events of a run after a sequence, those that are there at once in one piece. It ends after `run_end`, or
    after a `stream_reset` when the reader was too slow."""
    run_id = reader.run_id
    with hub.subscribe(run_id, reader.backlog, reader.patience) as live:
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
            caught_up = None  # its request is still to come, and all of its text behind it
        if caught_up is not None:
            yield (hub.make_event(origin, caught_up.request, caught_up),)
        if ended:
            return
        while (batch := await live.take()) is not None:
            news: list[Event] = []
            for event in batch:
                if not event.durable:
                    if caught_up is None or not already_shown(event, caught_up):
                        news.append(event)
                elif event.sequence > last:
                    if event.sequence > last + 1:  # what another process committed is not told here
                        news += await journal.read(run_id, last, event.sequence - last - 1)
                    last = event.sequence
                    news.append(event)
                else:
                    news.clear()  # said before what the reader has from the journal already
                if ended := isinstance(event.data, RunEnd):
                    break  # what comes still was said before it, by another process
            if news:
                yield news
            if ended:
                return
        yield (hub.make_event(origin, last, make_stream_reset(last)),)


async def without_resets(source: EventSource, run_id: RunId, after: int = 0) -> AsyncGenerator[Event, None]:
    """The events of a run up to its end, for a reader who goes on by itself when it was cut off."""
    last = after
    while True:
        cut_off = False
        async with aclosing(source.events(run_id, last)) as events:
            async for event in events:
                last = event.sequence if event.durable else last
                cut_off = isinstance(event.data, StreamReset)
                yield event
        if not cut_off:
            return


def already_shown(event: Event, caught_up: Token) -> bool:
    """Whether a token is part of the text that a late reader was given at once."""
    data = event.data
    return (
        isinstance(data, Token)
        and (data.request, data.attempt) == (caught_up.request, caught_up.attempt)
        and data.offset < len(caught_up.text)
    )


def is_silence(text: str) -> bool:
    """Whether that is all that an agent says which has nothing to say."""
    return text.strip() in SILENT_TEXTS


def may_be_silence(text: str) -> bool:
    """Whether what was said so far may still turn out to be the mark of an agent that has nothing to say."""
    said = text.strip()
    return any(mark.startswith(said) for mark in SILENT_TEXTS)
