"""Readers share large events and the text in progress, and hold no encoded copies."""

import asyncio
import tracemalloc
import weakref
from pathlib import Path

import pytest

from tests.fake_endpoint import DONE, Answer, delta
from tests.patience import HANG_SECONDS
from tests.surfaces.http.served_home import serve_home
from tests.surfaces.http.sse import Wire
from treadle.domain.envelope import Event, Origin, make_draft, to_json
from treadle.domain.events import Token
from treadle.domain.ids import AgentId, EventId, RunId, SessionId
from treadle.engine.shared_events import MAX_PAGE, SharedEvents, choose_page_size, cut_page
from treadle.engine.text_blocks import WrittenReply
from treadle.surfaces.http.stream_memory import ReaderMemory, StreamMemory
from treadle.surfaces.http.streams import MAX_SENT_BYTES, frame_events

ORIGIN = Origin(RunId("run_1"), SessionId("ses_1"), AgentId("agt_1"))


def make_event(size: int, number: int = 1) -> Event:
    made = make_draft(EventId(f"evt_{number}"), 0.0, Token(number, 1, 0, "x" * size))
    return Event(
        event_id=made.event_id,
        timestamp=made.timestamp,
        origin=ORIGIN,
        sequence=number,
        type=made.type,
        data=made.data,
        raw=made.raw,
    )


def test_equal_large_events_are_stored_once_while_a_reader_holds_one() -> None:
    shared = SharedEvents()
    first = shared.share(make_event(100_000))
    assert shared.share(make_event(100_000)) is first
    assert shared.share(make_event(100_000, 2)) is not first
    small = make_event(10)
    assert shared.share(small) is small
    remaining = weakref.ref(first)
    del first
    assert remaining() is None


def test_an_event_that_several_readers_hold_counts_once() -> None:
    total, left = StreamMemory(1_000_000), list[str]()
    readers = [ReaderMemory(total) for _ in range(10)]
    for reader in readers:
        reader.disconnect = lambda: left.append("")
    event, other = make_event(200_000), make_event(200_000, 2)
    for reader in readers:
        reader.hold_events((event,))
    once = total.held
    assert 400_000 <= once < 410_000
    readers[0].hold_events((other,))
    readers[0].close()
    assert total.held == once
    for reader in readers[1:]:
        reader.release_events((event,))
    assert (total.held, left) == (0, [])


@pytest.mark.parametrize("sizes", [(10, 20), (200_000,), (10, 100_000, 10), (30_000, 30_000)])
def test_parts_of_events_are_small_and_complete(sizes: tuple[int, ...]) -> None:
    events = [make_event(size, number) for number, size in enumerate(sizes, 1)]
    parts = list(frame_events(events))
    assert b"".join(parts) == b"".join(b"event: token\ndata: %b\n\n" % to_json(event) for event in events)
    assert max(map(len, parts)) <= 2 * MAX_SENT_BYTES


def test_pages_of_large_events_have_few_of_them() -> None:
    assert choose_page_size([make_event(10)] * 3) == MAX_PAGE
    assert choose_page_size([make_event(500_000)] * 3) == 2
    assert choose_page_size([make_event(5_000_000)]) == 1


def test_a_page_holds_a_megabyte_or_one_event() -> None:
    small, large, huge = make_event(10), make_event(700_000), make_event(3_000_000)
    for page, expected in (
        ([small, small, large], 3),
        ([small, large, large], 2),
        ([huge, small], 1),
        ([small, huge], 1),
        ([], 0),
    ):
        assert len(cut_page(page, lambda event: len(event.raw))) == expected


def test_text_in_progress_is_contiguous_in_shared_blocks() -> None:
    reply, whole = WrittenReply(3, 1), ""
    assert reply.make_live_events() == []
    for number in range(3000):
        reply.text.append(piece := f"piece {number} ")
        whole += piece
    tokens = [event for event in reply.make_live_events() if isinstance(event, Token)]
    assert (reply.text.join(), reply.text.length) == (whole, len(whole))
    assert "".join(token.text for token in tokens) == whole
    assert [token.offset for token in tokens[1:]] == [token.offset + len(token.text) for token in tokens[:-1]]
    again = [event for event in reply.make_live_events() if isinstance(event, Token)]
    assert len(again) > 1
    assert all(one.text is other.text for one, other in zip(tokens, again, strict=True))


async def test_stalled_readers_of_an_ended_run_share_its_large_events(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.surfaces.http.streams.END_TIMEOUT_SECONDS", 0.1)
    words = [delta(content="x" * 100_000) for _ in range(40)]

    async def perform() -> None:
        async with serve_home(
            tmp_path, Answer([*words, delta(finish="stop"), DONE]), stream_memory=2**25
        ) as server:
            run_id = await server.begin()
            await server.until(run_id, "completed")
            path = f"/v1/runs/{run_id}/events"
            tracemalloc.start(1)
            stalled = [await Wire.open(server.port, path, server.token, limit=1024) for _ in range(20)]
            async with asyncio.timeout(HANG_SECONDS):
                while len(server.streams) < 20 or server.streams.memory.held < 8_000_000:  # noqa: ASYNC110 -- the server opens them later
                    await asyncio.sleep(0.01)
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
            assert server.streams.memory.disconnected == 0, "they hold the same event"
            assert peak < 2 * 2**25, "20 readers with copies of their own would hold 240 MB"
            for wire in stalled:
                await wire.close()

    await perform()
