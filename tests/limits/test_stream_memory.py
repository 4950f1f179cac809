"""The memory of stalled readers is bounded together, and is returned."""

import asyncio
from pathlib import Path

import pytest

from tests.fake_endpoint import DONE, Answer, delta
from tests.limits.test_shared_events import make_event
from tests.patience import HANG_SECONDS
from tests.surfaces.http.served_home import serve_home
from tests.surfaces.http.sse import Wire
from treadle.surfaces.http.stream_memory import ReaderMemory, StreamMemory


def test_the_readers_that_hold_most_are_disconnected_first() -> None:
    total, left = StreamMemory(1000), list[str]()
    readers = {name: ReaderMemory(total) for name in ("small", "large", "new")}
    for name, reader in readers.items():
        reader.disconnect = lambda name=name: left.append(name)
    readers["small"].hold(300)
    readers["large"].hold(600)
    readers["new"].hold(200)
    assert (left, total.held, total.disconnected) == (["large"], 500, 1)
    readers["large"].hold(-600)
    assert total.held == 500, "what it held is counted once"
    readers["small"].close()
    readers["new"].close()
    assert total.held == 0


def test_a_reader_alone_that_lets_events_wait_is_disconnected() -> None:
    total, left = StreamMemory(1_000_000), list[str]()
    reader = ReaderMemory(total)
    reader.disconnect = lambda: left.append("alone")
    for number in range(3):
        reader.hold_events((make_event(200_000, number),))
    assert (left, total.held) == (["alone"], 0)


def test_one_event_or_piece_above_the_limit_is_held_besides_it() -> None:
    total, left = StreamMemory(1_000_000), list[str]()
    one, two = ReaderMemory(total), ReaderMemory(total)
    one.disconnect, two.disconnect = lambda: left.append("one"), lambda: left.append("two")
    huge = make_event(600_000)
    one.hold_events((huge,))
    two.hold(10)
    one.hold(900_000)
    assert left == [], "the rest is within the limit"
    two.hold(200_000)
    assert left == ["one"]
    two.hold_piece(3_000_000)
    assert left == ["one"]
    two.release_piece()
    two.hold_piece(100)
    assert total.held == 200_110


async def test_stalled_readers_are_disconnected_resume_and_return_their_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("treadle.surfaces.http.streams.END_TIMEOUT_SECONDS", 0.1)
    words = [delta(content="x" * 4000) for _ in range(1500)]

    flood = Answer([*words, delta(finish="stop"), DONE])
    async with serve_home(tmp_path, flood, stream_memory=2**23) as server:
        run_id = await server.begin()
        path = f"/v1/runs/{run_id}/events"
        stalled = [await Wire.open(server.port, path, server.token, limit=1024) for _ in range(3)]
        async with asyncio.timeout(HANG_SECONDS):
            while not server.streams.memory.disconnected:
                assert server.streams.memory.held <= 2**23
                await asyncio.sleep(0.01)
            await server.until(run_id, "completed")
        for wire in stalled:
            await wire.close()
        while len(server.streams):  # noqa: ASYNC110 -- the server notices the end of a connection later
            await asyncio.sleep(0.01)
        assert server.streams.memory.held == 0
        after = await Wire.open(server.port, path, server.token, last="2")
        events = [each async for each in after.events()]
        assert events[0].id == "3"
        assert events[-1].type == "run_end"
        await after.close()
