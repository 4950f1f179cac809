"""Streams: no gaps or duplicates after disconnects, and only for callers that may see them."""

import asyncio
import random
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path
from typing import Any, cast

import pytest

from tests.fake_endpoint import DONE, PAUSE, Answer, Request, delta, fragment, says
from tests.patience import HANG_SECONDS, until
from tests.surfaces.http.served_home import ServedHome, serve_home, wants_a_file
from tests.surfaces.http.sse import Sent, Wire
from treadle.operations import token_service as access
from treadle.surfaces.http import open_streams, streams
from treadle.surfaces.http.server import ABORT_KEY, BoundedProtocol

STEPS = 6
WORDS = [f"word{number} " for number in range(40)]


def steps_and_words(request: Request) -> Answer:
    """A model that looks into the workspace some times, with words in between, and then answers at length."""
    turns = sum("tool_calls" in message for message in request.json["messages"])
    if turns < STEPS:
        call = fragment(0, f"call_{turns}", "glob", f'{{"pattern": "*.{turns}"}}')
        said = [delta(content=word) for word in WORDS[:10]]
        return Answer([*said, delta(tool_calls=[call]), delta(finish="tool_calls"), DONE])
    return Answer([*(delta(content=word) for word in WORDS), delta(finish="stop"), DONE])


async def start_busy_run(server: ServedHome) -> str:
    """Start a run with many events, and return its ID."""
    agent = {"name": "busy", "model": "fake/m", "tools": ["glob"], "memory": {"remember": False, "recall": 0}}
    assert (await server.ask("POST", "/v1/agents", agent)).status == 201
    return await server.begin("busy")


def assert_whole(sent: list[Sent]) -> None:
    """Check that all durable events are there once, in order, up to the end."""
    durable = [int(each.id) for each in sent if each.id is not None]
    assert durable == list(range(1, len(durable) + 1))
    assert [each.data["sequence"] for each in sent if each.id is not None] == durable
    assert sent[-1].type == "run_end"


async def test_a_stream_cut_at_any_byte_resumes_without_gaps(tmp_path: Path) -> None:
    chance = random.Random(7)

    async with serve_home(tmp_path, policy=steps_and_words) as server:
        run_id = await start_busy_run(server)
        sent: list[Sent] = []
        cuts = 0
        while not sent or sent[-1].type != "run_end":
            last = next((each.id for each in reversed(sent) if each.id is not None), None)
            wire = await Wire.open(server.port, f"/v1/runs/{run_id}/events", server.token, last)
            assert wire.status == 200
            some = wire.events(most_bytes=chance.randrange(1, 4000))
            sent += [each async for each in some if each.id is not None]
            wire.writer.transport.abort()
            cuts += 1
        assert cuts > 10
        assert_whole(sent)
        assert len(server.streams) <= cuts
        await until(lambda: len(server.streams) == 0)  # nothing is left of those that fell away
        done = await Wire.open(server.port, f"/v1/runs/{run_id}/events", server.token, sent[-1].id)
        assert done.status == 204
        await done.close()


async def test_a_late_reader_gets_the_text_in_progress_once(tmp_path: Path) -> None:
    half = len(WORDS) // 2
    pieces = [*(delta(content=word) for word in WORDS[:half]), PAUSE]
    slow = Answer([*pieces, *(delta(content=word) for word in WORDS[half:]), delta(finish="stop"), DONE])

    async with serve_home(tmp_path, slow) as server:
        run_id = await server.begin()
        path = f"/v1/runs/{run_id}/events"
        first = await Wire.open(server.port, path, server.token)
        early = [each async for each in until_words(first, half)]
        late = [await Wire.open(server.port, path, server.token) for _ in range(5)]
        begun = [await until_a_word(wire) for wire in late]
        server.endpoint.go_on.set()
        text = "".join(WORDS)
        for wire, sent in zip([first, *late], [early, *begun], strict=True):
            sent += [each async for each in wire.events()]
            tokens = [each.data["data"] for each in sent if each.type == "token"]
            assert "".join(token["text"] for token in tokens) == text
            assert [token["offset"] for token in tokens] == offsets(tokens)
            assert sent[-1].data["data"]["text"] == text
            assert_whole(sent)
            await wire.close()


def offsets(tokens: list[Any]) -> list[int]:
    """Where each begins, if none is missing and none comes twice."""
    at = 0
    found: list[int] = []
    for token in tokens:
        found.append(at)
        at += len(token["text"])
    return found


async def until_words(wire: Wire, count: int) -> AsyncGenerator[Sent, None]:
    seen = 0
    async for each in wire.events():
        yield each
        seen += len(each.data["data"]["text"].split()) if each.type == "token" else 0
        if seen == count:
            return


async def until_a_word(wire: Wire) -> list[Sent]:
    """What comes first, which ends with the text in flight."""
    return [each async for each in until_words(wire, len(WORDS) // 2)]


async def test_a_slow_reader_is_disconnected_and_resumes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The run is not slowed down. The reader gets a reset and misses nothing durable."""
    long = Answer([*(delta(content="x" * 2000) for _ in range(3000)), delta(finish="stop"), DONE])

    async with serve_home(tmp_path, long) as server:
        monkeypatch.setattr(streams, "MAX_EVENTS_BEHIND", 50)
        run_id = await server.begin()
        path = f"/v1/runs/{run_id}/events"
        slow = await Wire.open(server.port, path, server.token, limit=1024)
        await server.until(run_id, "completed")  # although no client reads
        sent = [each async for each in slow.events()]
        assert sent[-1].type == "stream_reset"
        assert sent[-1].id is None
        await slow.close()
        last = next((each.id for each in reversed(sent) if each.id is not None), None)
        again = await Wire.open(server.port, path, server.token, last)
        kept = [each for each in sent if each.id is not None]
        assert_whole([*kept, *[each async for each in again.events()]])
        await again.close()


async def test_a_stalled_reader_is_disconnected_when_its_token_is_revoked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "END_TIMEOUT_SECONDS", 0.01)
    hung_up = list[str]()

    begin = BoundedProtocol.on_headers_complete

    def begin_watched(self: BoundedProtocol) -> None:
        begin(self)
        scope = cast("dict[str, Any]", self.scope)
        abort = scope[ABORT_KEY]

        def hang_up() -> None:
            hung_up.append(scope["path"])
            abort()

        scope[ABORT_KEY] = hang_up

    monkeypatch.setattr(BoundedProtocol, "on_headers_complete", begin_watched)
    long = Answer([*(delta(content="x" * 4000) for _ in range(3000)), delta(finish="stop"), DONE])

    async def perform() -> None:
        async with serve_home(tmp_path, long) as server:
            token = await server.mint("read")
            run_id = await server.begin()
            path = f"/v1/runs/{run_id}/events"
            wire = await Wire.open(server.port, path, token, limit=1024)
            await server.until(run_id, "completed")
            assert len(server.streams) == 1
            [_, mine] = (await server.ask("GET", "/v1/tokens")).json["items"]
            await server.ask("DELETE", f"/v1/tokens/{mine['token_id']}")
            await until(lambda: hung_up == [path])  # not until then is anything read that would let it end well
            assert len(server.streams) == 0
            assert not (await wire.reader.read()).endswith(b"0\r\n\r\n")  # it was not taken to its end
            await wire.close()

    await perform()


async def test_a_stream_that_starts_as_the_server_stops_ends_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It starts and ends without an error: a browser reconnects after a 200 and never after a 500. The server
    stops before anything was sent."""
    added = open_streams.OpenStreams.add

    def add_and_cut(self: open_streams.OpenStreams, stream: open_streams.OpenStream) -> None:
        added(self, stream)
        stream.cut()

    async with serve_home(tmp_path, wants_a_file()) as server:
        run_id = await server.begin("asking")
        await server.until(run_id, "waiting")
        paths = (f"/v1/runs/{run_id}/events", "/v1/events")
        with monkeypatch.context() as as_it_begins:
            as_it_begins.setattr(open_streams.OpenStreams, "add", add_and_cut)
            for path in paths:
                await begins_and_ends(server, path)
        await server.streams.close()  # and no stream begins from now on
        for path in paths:
            await begins_and_ends(server, path)


async def begins_and_ends(server: ServedHome, path: str) -> None:
    wire = await Wire.open(server.port, path, server.token)
    async with asyncio.timeout(HANG_SECONDS):
        assert (wire.status, await drain(wire)) == (200, [])
    await wire.close()


@pytest.mark.parametrize("elsewhere", [False, True])
async def test_a_revoked_token_loses_its_streams(
    tmp_path: Path, elsewhere: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At once, without a look at the database; and at the second look where another process has revoked it."""
    assert 2 * access.FRESH_SECONDS < 5, "what was looked up is used for so long, and looked at as often"
    monkeypatch.setattr(access, "FRESH_SECONDS", 0.05 if elsewhere else 10 * HANG_SECONDS)

    async with serve_home(tmp_path, wants_a_file()) as server:
        token = await server.mint("read", "run")
        run_id = await server.begin("asking")
        await server.until(run_id, "waiting")
        wires = [
            await Wire.open(server.port, path, token)
            for path in (f"/v1/runs/{run_id}/events", "/v1/events", "/v1/agents/asking/events")
        ]
        [mine] = [each for each in await server.engine.context.access.list() if each.name == "someone"]
        if elsewhere:  # as another process would
            with closing(sqlite3.connect(server.home.path / "treadle.db")) as database:
                database.execute("UPDATE tokens SET revoked_at = 1 WHERE token_id = ?", (mine.token_id,))
                database.commit()
        else:
            await server.engine.context.access.revoke(mine.token_id)
        for wire in wires:
            await drain(wire)
            await wire.close()
        again = await Wire.open(server.port, "/v1/events", token)
        assert again.status == 401
        await again.close()


async def test_a_quiet_stream_has_a_heartbeat(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(open_streams, "HEARTBEAT_INTERVAL_SECONDS", 0.05)

    async with serve_home(tmp_path, wants_a_file()) as server:
        run_id = await server.begin("asking")
        await server.until(run_id, "waiting")
        wires = [
            await Wire.open(server.port, path, server.token) for path in (f"/v1/runs/{run_id}/events", "/v1/events")
        ]
        reading = [asyncio.ensure_future(drain(wire)) for wire in wires]
        await until(lambda: all(wire.comments >= 3 for wire in wires))
        metrics = (await server.ask("GET", "/metrics")).body.decode()
        assert "treadle_sse_streams_open 2" in metrics
        await server.ask("POST", f"/v1/runs/{run_id}/cancel")
        assert (await reading[0])[-1].type == "run_end"
        reading[1].cancel()
        for wire in wires:
            await wire.close()


async def drain(wire: Wire) -> list[Sent]:
    return [each async for each in wire.events()]


async def test_the_feed_is_in_the_order_of_commits_without_a_gap(tmp_path: Path) -> None:
    chance = random.Random(3)

    async with serve_home(tmp_path) as server:
        begin = (await server.ask("GET", "/v1/runs")).json["items"]
        assert begin == []
        wanted = 12
        runs = [asyncio.ensure_future(server.begin(["one", "two"][number % 2])) for number in range(wanted)]
        feeds: dict[str, list[Sent]] = {"/v1/events": [], "/v1/agents/one/events": []}
        for path, sent in feeds.items():
            ends = wanted if path == "/v1/events" else wanted // 2
            while sum(each.type == "run_end" for each in sent) < ends:
                last = sent[-1].id if sent else "0"
                wire = await Wire.open(server.port, path, server.token, last)
                async for each in wire.events(most_bytes=chance.randrange(1, 3000)):
                    sent.append(each)
                    if sum(each.type == "run_end" for each in sent) == ends:
                        break
                wire.writer.transport.abort()
        ids = [await run for run in runs]
        for path, sent in feeds.items():
            positions = [int(each.id or 0) for each in sent]
            assert positions == sorted(set(positions))
            of_runs = {each.data["run_id"] for each in sent}
            assert of_runs == set(ids if path == "/v1/events" else ids[::2])
            for run_id in of_runs:
                sequences = [each.data["sequence"] for each in sent if each.data["run_id"] == run_id]
                assert sequences == list(range(1, len(sequences) + 1))
        wrong = await Wire.open(server.port, "/v1/events", server.token, "999999")
        first = await anext(aiter(wrong.events()))
        assert (first.type, first.id) == ("stream_reset", None)
        await wrong.close()
        for cursor in ("x", "-1", "1.5", "9" * 30, "٣"):
            reply = await server.ask("GET", "/v1/events", Last_Event_ID=cursor.encode().decode("latin-1"))
            assert reply.problem == "WrongCursor"


async def test_an_unknown_event_id_restarts_the_stream(tmp_path: Path) -> None:
    async with serve_home(tmp_path, says("Hello.")) as server:
        run_id = await server.begin()
        await server.until(run_id, "completed")
        wire = await Wire.open(server.port, f"/v1/runs/{run_id}/events", server.token, "5000")
        sent = [each async for each in wire.events()]
        assert sent[0].type == "stream_reset"
        assert_whole(sent[1:])
        await wire.close()
        zero = await Wire.open(server.port, f"/v1/runs/{run_id}/events?after=3", server.token, "0")
        assert_whole([each async for each in zero.events()])
        await zero.close()
