"""The stream of a transcript: readers that join at any moment, and reconnect at any byte, see the same items."""

import asyncio
import random
from pathlib import Path
from typing import Any

import msgspec

from tests.fake_endpoint import DONE, PAUSE, Answer, delta, fragment, says
from tests.patience import until
from tests.surfaces.http.served_home import ServedHome, serve_home, wants_a_file
from tests.surfaces.http.sse import Wire
from tests.surfaces.http.test_streams import start_busy_run, steps_and_words
from treadle.core.transcript.copy import TranscriptCopy
from treadle.domain.transcript import AnswerItem, ApprovalItem, CallItem, EndItem, Item, MessageItem
from treadle.operations.transcript_stream import TranscriptChanges
from treadle.operations.transcripts import TranscriptPage

WORDS = [f"word{number} " for number in range(40)]


class Reader:
    """A client that only applies changes."""

    def __init__(self, server: ServedHome, run_id: str) -> None:
        self._server = server
        self._run_id = run_id
        self._wire: Wire | None = None
        self.copy = TranscriptCopy()
        self.last: str | None = None

    async def follow(self, most_bytes: int | None = None, until_text: str | None = None) -> bool:
        """Apply changes; return whether the run has ended."""
        if self._wire is None:
            path = f"/v1/runs/{self._run_id}/events?view=transcript"
            self._wire = await Wire.open(self._server.port, path, self._server.token, self.last)
            if self._wire.status == 204:
                return True
        async for sent in self._wire.events(most_bytes=most_bytes):
            self.last = sent.id
            batch = msgspec.convert(sent.data, TranscriptChanges)
            assert str(batch.sequence) == sent.id
            for change in batch.changes:
                self.copy.apply(change)
            if until_text is not None and until_text in self.answer:
                return False
        if most_bytes is not None:
            await self.leave()
        return any(isinstance(item, EndItem) for item in self.copy.items)

    async def leave(self) -> None:
        """Lose the connection."""
        if self._wire is not None:
            self._wire.writer.transport.abort()
            await self._wire.close()
            self._wire = None

    @property
    def answer(self) -> str:
        return "".join(item.text for item in self.copy.items if isinstance(item, AnswerItem))


async def read_page(server: ServedHome, run_id: str, query: str = "") -> TranscriptPage:
    reply = await server.ask("GET", f"/v1/runs/{run_id}/transcript{query}")
    assert reply.status == 200, reply
    return msgspec.json.decode(reply.body, type=TranscriptPage)


async def test_a_reader_that_is_cut_at_any_byte_has_the_same_items_as_the_page(tmp_path: Path) -> None:
    chance = random.Random(11)

    async with serve_home(tmp_path, policy=steps_and_words) as server:
        run_id = await start_busy_run(server)
        reader, cuts = Reader(server, run_id), 0
        while not await reader.follow(most_bytes=chance.randrange(500, 3000) * (1 + cuts // 8)):
            cuts += 1
        page = await read_page(server, run_id, "?limit=500")
        assert cuts > 3
        assert reader.copy.items == list(page.items)
        assert reader.copy.totals == page.totals
        await until(lambda: len(server.streams) == 0)


async def test_readers_that_join_in_mid_token_see_the_text_from_its_beginning(tmp_path: Path) -> None:
    half = len(WORDS) // 2
    call = fragment(0, "call_1", "glob", '{"pattern": ')
    pieces = [delta(reasoning_content="Let me think. "), *(delta(content=word) for word in WORDS[:half])]
    rest = [*(delta(content=word) for word in WORDS[half:]), delta(finish="stop"), DONE]
    slow = Answer([*pieces, delta(tool_calls=[call]), PAUSE, *rest])

    async with serve_home(tmp_path, slow) as server:
        run_id = await server.begin()
        first = Reader(server, run_id)
        await first.follow(until_text=WORDS[half - 1])
        late = [Reader(server, run_id) for _ in range(3)]
        for reader in late:
            await reader.follow(until_text=WORDS[half - 1])
        page = await read_page(server, run_id)
        kinds = [type(item).__name__ for item in late[0].copy.items]
        assert kinds == ["MessageItem", "ThinkingItem", "AnswerItem", "CallItem"]
        writing = [item for item in late[0].copy.items if isinstance(item, CallItem)]
        assert [(call.name, call.arguments, call.state) for call in writing] == [
            ("glob", '{"pattern": ', "writing")
        ]
        assert all(reader.copy.items == list(page.items) for reader in late)
        server.endpoint.go_on.set()
        for reader in [first, *late]:
            assert await reader.follow()
            await reader.leave()
        page = await read_page(server, run_id)
        assert all(reader.copy.items == list(page.items) for reader in [first, *late])
        assert not any(isinstance(item, CallItem) and item.state == "writing" for item in page.items)


async def test_an_open_page_sees_the_decision_of_another(tmp_path: Path) -> None:
    async with serve_home(tmp_path, wants_a_file(), says("Written.")) as server:
        run_id = await server.begin("asking")
        await server.until(run_id, "waiting")
        reader = Reader(server, run_id)
        following = asyncio.create_task(reader.follow())
        await until(lambda: any(isinstance(item, ApprovalItem) for item in reader.copy.items))
        [approval] = [item for item in reader.copy.items if isinstance(item, ApprovalItem)]
        assert (approval.state, reader.copy.totals.waiting_for) == ("pending", "approval")
        decided = await server.ask("POST", f"/v1/approvals/{approval.approval_id}", {"decision": "approve"})
        assert decided.status == 200
        assert await following
        await reader.leave()
        states = [item.state for item in reader.copy.items if isinstance(item, ApprovalItem | CallItem)]
        assert states == ["done", "approved"]


async def test_pages_of_a_run_follow_each_other_without_gaps(tmp_path: Path) -> None:
    async with serve_home(tmp_path, policy=steps_and_words) as server:
        run_id = await start_busy_run(server)
        await server.until(run_id, "completed")
        whole = await read_page(server, run_id, "?limit=500")
        items: list[Item] = []
        query = "?limit=4"
        while True:
            page = await read_page(server, run_id, query)
            items[:0] = page.items
            if page.next is None:
                break
            query = f"?limit=4&before={page.next}"
        assert items == list(whole.items)
        assert isinstance(items[0], MessageItem)
        wrong = await server.ask("GET", f"/v1/runs/{run_id}/transcript?before=x.1")
        assert wrong.status == 400


async def test_a_reader_that_may_not_see_the_run_learns_nothing(tmp_path: Path) -> None:
    async with serve_home(tmp_path) as server:
        run_id = await server.begin()
        stranger = await server.mint("read", agents=["two"])
        for path in (f"/v1/runs/{run_id}/transcript", f"/v1/runs/{run_id}/events?view=transcript"):
            hidden: Any = await server.ask("GET", path, token=stranger)
            assert hidden.problem == "UnknownRun"
