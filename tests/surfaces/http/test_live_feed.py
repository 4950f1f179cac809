"""The feed of an agent with its live events: tokens in their place among the durable events."""

import asyncio
from contextlib import aclosing
from pathlib import Path

import pytest

from tests.fake_endpoint import DONE, PAUSE, Answer, delta
from tests.surfaces.http.served_home import ServedHome, serve_home
from tests.surfaces.http.sse import Sent, Wire
from treadle.operations import event_feed as feed
from treadle.ports.journal import PositionedEvent
from treadle.surfaces.http.streams import frame_feed_item

WORDS = [f"word{number} " for number in range(20)]
HALF = len(WORDS) // 2
SLOW = Answer(
    [
        *(delta(content=word) for word in WORDS[:HALF]),
        PAUSE,
        *(delta(content=word) for word in WORDS[HALF:]),
        delta(finish="stop"),
        DONE,
    ]
)


async def read_until(wire: Wire, sent: list[Sent], *, words: int = 0, ends: int = 0) -> None:
    """Read until so many words were shown, or so many runs have ended."""
    async for each in wire.events():
        sent.append(each)
        if words and len(text_of(sent).split()) >= words:
            return
        if ends and sum(each.type == "run_end" for each in sent) == ends:
            return


def text_of(sent: list[Sent]) -> str:
    return "".join(each.data["data"]["text"] for each in sent if each.type == "token")


async def open_feed(server: ServedHome, query: str, last: str | None = None) -> Wire:
    wire = await Wire.open(server.port, f"/v1/agents/one/events{query}", server.token, last)
    assert wire.status == 200
    return wire


async def test_tokens_come_between_their_request_and_their_response(tmp_path: Path) -> None:
    async with serve_home(tmp_path, SLOW) as server:
        early, durable_only = await open_feed(server, "?live=true"), await open_feed(server, "")
        run_id = await server.begin()
        sent: list[Sent] = []
        await read_until(early, sent, words=HALF)
        late, heard_late = await open_feed(server, "?live=true"), list[Sent]()
        resumed, heard_all = await open_feed(server, "?live=true", "0"), list[Sent]()
        await read_until(late, heard_late, words=HALF)
        await read_until(resumed, heard_all, words=HALF)
        server.endpoint.go_on.set()
        plain: list[Sent] = []
        for wire, events in ((early, sent), (late, heard_late), (resumed, heard_all), (durable_only, plain)):
            await read_until(wire, events, ends=1)
            await wire.close()
        for events in (sent, heard_late, heard_all):
            assert text_of(events) == "".join(WORDS)
            kinds = [each.type for each in events]
            assert kinds.index("llm_response") > max(at for at, kind in enumerate(kinds) if kind == "token")
            assert all(each.id is None for each in events if each.type == "token")
        for events in (sent, heard_all):
            kinds = [each.type for each in events]
            assert kinds.index("llm_request") < kinds.index("token")
            assert [each.id for each in events if each.id] == [each.id for each in plain]
        assert {each.data["run_id"] for each in sent} == {run_id}
        assert "token" not in [each.type for each in plain]


async def test_the_tokens_of_other_agents_and_other_owners_are_not_shown(tmp_path: Path) -> None:
    async with serve_home(tmp_path, policy=lambda _: SLOW) as server:
        wire = await open_feed(server, "?live=true")
        of_owner = await server.mint("read", "run", visibility="own")
        theirs = await Wire.open(server.port, "/v1/events?live=true", of_owner)
        server.endpoint.go_on.set()
        await server.until(await server.begin("two"), "completed")
        server.endpoint.go_on.clear()
        mine = await server.begin("one")
        sent: list[Sent] = []
        await read_until(wire, sent, words=HALF)  # it pauses there
        server.endpoint.go_on.set()
        await read_until(wire, sent, ends=1)
        assert {each.data["run_id"] for each in sent} == {mine}
        assert text_of(sent) == "".join(WORDS)
        own = await server.ask("POST", "/v1/agents/two/runs", {"message": "Go."}, of_owner)
        heard: list[Sent] = []
        await read_until(theirs, heard, ends=1)
        assert {each.data["run_id"] for each in heard} == {own.json["run_id"]}
        await wire.close()
        await theirs.close()


async def test_a_slow_reader_learns_what_it_missed_and_loses_no_durable_event(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(feed, "MAX_BACKLOG_EVENTS", 4)

    async with serve_home(tmp_path, SLOW) as server:
        service = server.engine.service
        async with aclosing(service.live_feed(agents=("one",))) as pages:
            first = asyncio.ensure_future(anext(pages))
            run_id = await server.begin()
            taken: list[object] = [*await first]  # and then it reads nothing until the run has ended
            server.endpoint.go_on.set()
            await server.until(run_id, "completed")
            async for page in pages:
                taken += page
                if any(isinstance(each, PositionedEvent) and each.event.type == "run_end" for each in page):
                    break
        missed = sum(each.events for each in taken if isinstance(each, feed.Missed))
        assert missed
        assert b": %d live events were dropped" % missed in b"".join(frame_feed_item(feed.Missed(missed)))
        durable = [each.event.sequence for each in taken if isinstance(each, PositionedEvent)]
        assert durable == list(range(1, len(durable) + 1))
