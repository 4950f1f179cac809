"""Replies that are compressed without a request for it: a few bytes may expand to very many."""

import asyncio
import gzip
import time

import pytest

from tests.fake_endpoint import DONE, Answer, FakeEndpoint, Framing, delta, refuses, says
from tests.models.chat import ModelEvent, collect, converse, endpoint, failed
from tests.patience import without_garbage_collection
from treadle.domain.messages import Text
from treadle.domain.providers import Timeouts
from treadle.models.formats.chat_completions import FORMAT
from treadle.models.http.client import ModelClient
from treadle.models.http.transport import Connections
from treadle.ports.model import Completed, Failed

PACKED = {"Content-Type": "text/event-stream", "Content-Encoding": "gzip"}
ENDS = delta(content="hi", finish="stop") + DONE


def test_no_compression_is_requested() -> None:
    [request] = converse(says("hi")).requests
    assert request.headers["accept-encoding"] == "identity"


@pytest.mark.parametrize("framing", ["chunked", "length", "close"])
@pytest.mark.parametrize("size", [1, 100_000])
def test_an_unrequested_compressed_reply_is_read(framing: Framing, size: int) -> None:
    body = gzip.compress(ENDS)
    pieces = [body[at : at + size] for at in range(0, len(body), size)]
    [[*_, last]] = converse(Answer(pieces, headers=PACKED, framing=framing)).replies
    assert isinstance(last, Completed)
    assert last.parts == (Text("hi"),)


def test_a_compressed_error_message_is_read() -> None:
    packed = gzip.compress(b'{"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}')
    failure = failed(refuses(429, packed, Content_Encoding="gzip"))
    assert (failure.kind, "You exceeded your quota" in failure.message) == ("billing", True)


async def read_compressed(body: bytes, timeouts: Timeouts) -> tuple[list[ModelEvent], float]:
    """Return what comes of a body that is packed, and the largest share of all the work that was done without
    giving anybody else in the loop a turn."""

    async def run() -> tuple[list[ModelEvent], float]:
        connections, longest, done, began = Connections(), 0.0, False, 0.0

        async def wait_for_a_turn() -> None:
            nonlocal longest
            while not done:
                since = time.thread_time()
                await asyncio.sleep(0)
                longest = max(longest, time.thread_time() - since)

        async with FakeEndpoint(Answer([gzip.compress(body)], headers=PACKED, framing="length")) as server:
            began = time.thread_time()
            waiting = asyncio.create_task(wait_for_a_turn())
            events = await collect(ModelClient(FORMAT, endpoint(server.url, timeouts), connections))
            done = True
            await waiting
            worked = time.thread_time() - began
        await connections.close()
        return events, longest / worked

    with without_garbage_collection():
        return await run()


async def read_in_turns(body: bytes) -> ModelEvent:
    """Return the last event. Of several tries, one must have given the others a turn often enough."""
    shares: list[float] = []
    while True:
        [*_, last], longest = await read_compressed(body, Timeouts(60, 60, 60))
        if longest < 0.25:
            return last
        shares.append(longest)
        assert len(shares) < 4, shares


TINY = b'data: {"choices":[]}\n\n'


async def test_a_decompression_bomb_does_not_block_other_tasks() -> None:
    assert isinstance(await read_in_turns(TINY * 500_000 + ENDS), Completed)


async def test_a_decompression_bomb_is_limited() -> None:
    [end], _ = await read_compressed(TINY * 4_000_000 + ENDS, Timeouts(whole_call=0.2))
    assert isinstance(end, Failed)
    assert "had not finished its reply after 0.2 s" in end.message


async def test_an_endless_event_is_refused() -> None:
    end = await read_in_turns(b": " + b"x" * 70_000_000)
    assert isinstance(end, Failed)
    assert (end.kind, "larger than 16 MB" in end.message) == ("malformed", True)
