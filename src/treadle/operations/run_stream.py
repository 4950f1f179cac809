"""Follows a run: the events in its journal, the text that is being generated, and then all further events, with no
gaps or duplicates."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from functools import partial

from msgspec import Struct

from treadle.domain.envelope import Event
from treadle.domain.events import RunEnd
from treadle.domain.ids import RunId
from treadle.engine.event_hub import EventHub, durable_sequence, make_stream_reset
from treadle.engine.shared_events import FIRST_PAGE, choose_page_size
from treadle.engine.subscription import MAX_BACKLOG_EVENTS, UNCOUNTED, MemoryAccount, Subscription
from treadle.engine.text_blocks import LiveDelta, TextKey, measure_text, text_end, text_key
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
    memory: MemoryAccount = UNCOUNTED
    """Counts the events that wait for the reader."""


ShownTexts = dict[TextKey, int]
"""The texts that a late reader received in one piece, with their lengths. The texts themselves are not kept."""


async def follow_run(
    reader: StreamReader, hub: EventHub, journal: Journal, runs: Runs
) -> AsyncGenerator[Sequence[Event], None]:
    """Yield the events of a run after a sequence, in batches of what is available.

    Ends after `run_end`, or after a `stream_reset` if the reader was too slow. No event is held between batches."""
    run_id, memory = reader.run_id, reader.memory
    read = partial(hub.shared.read, journal, run_id)
    with hub.subscribe(run_id, reader.backlog, reader.gather_seconds, memory) as live:
        record = reader.record or await runs.record(run_id)
        origin, last, ended = record.origin, reader.after, record.outcome is not None
        live.last = max(live.last, min(last, record.sequence))
        size, more = FIRST_PAGE, True
        while more:
            page, more = await hub.shared.read_page(journal, run_id, last, size)
            if not page:
                break
            last, ended = page[-1].sequence, ended or isinstance(page[-1].data, RunEnd)
            live.last = max(live.last, last)
            size = choose_page_size(page)
            memory.hold_events(page)
            await asyncio.sleep(0)  # readers that are disconnected because of this return their memory first
            yield page
            memory.release_events(page)
            del page
        live.catching_up = False
        shown: ShownTexts = {}
        texts = [data for data in hub.list_live_data(run_id) if durable_sequence(data) <= last]  # others will come
        memory.hold(sum(map(measure_text, texts)))
        while texts:
            data = texts.pop(0)
            shown[text_key(data)] = text_end(data)
            yield (hub.make_event(origin, durable_sequence(data), data),)
            memory.hold(-measure_text(data))
            del data
        while not ended:
            news = await _take_news(live, _Seen(last, shown), read)
            if news is None:
                yield (hub.make_event(origin, last, make_stream_reset(last)),)
                return
            last, ended = news.last, news.ended
            if news.events:
                yield news.events
            del news


class _Seen(Struct, frozen=True):
    """What a reader has: all durable events up to `last`, and perhaps live texts."""

    last: int
    texts: ShownTexts


class _News(Struct, frozen=True):
    """Events that are new to a reader, and where it is after them."""

    events: list[Event]
    last: int
    ended: bool


async def _take_news(
    live: Subscription, seen: _Seen, read: Callable[[int, int], Awaitable[Sequence[Event]]]
) -> _News | None:
    """Return the events that the reader lacks, as soon as there are any, or None if it was cut off."""
    batch = await live.take()
    if batch is None:
        return None
    news, last, ended = list[Event](), seen.last, False
    for event in batch:
        if not event.durable:
            if not is_already_shown(event, seen.texts):
                news.append(event)
        elif event.sequence > last:
            if event.sequence > last + 1:  # commits of another process are not published here
                news += await read(last, event.sequence - last - 1)
            last = event.sequence
            news.append(event)
        else:
            news.clear()  # older than what the reader already has from the journal
        if ended := isinstance(event.data, RunEnd):
            break  # later items are older, from another process
    return _News(news, last, ended)


def is_already_shown(event: Event, shown: ShownTexts) -> bool:
    """Return whether a live event is part of a text that a late reader received in one piece."""
    data = event.data
    return bool(shown) and isinstance(data, LiveDelta) and data.offset < shown.get(text_key(data), 0)
