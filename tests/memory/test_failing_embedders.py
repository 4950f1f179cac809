"""Embedders that fail, hang or change: memories are still found, and an event reports the failure."""

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.fake_endpoint import Answer, FakeEndpoint, Request, Silence, refuses
from tests.memory.room import OWN, One, Room, Topics, run
from tests.memory.test_embedders import answer
from tests.patience import HANG_SECONDS
from treadle.memory.embedders import Embedders
from treadle.memory.remote_embedder import EmbedderEndpoint
from treadle.memory.search import COOLDOWN_SECONDS, HybridMemories
from treadle.ports.memory import Vector
from treadle.stores.sqlite.connection import open_database


def test_an_embedder_that_fails_is_reported_and_paused_for_a_while() -> None:
    async def work(room: Room) -> None:
        await room.add("Likes green tea.")
        room.topics.failure = "the embedder is on strike"
        recall = await room.memories.recall(OWN, "green tea", 5, "fake/topics")
        assert [hit.memory.text for hit in recall.found] == ["Likes green tea."]
        assert recall.by == "text"
        assert recall.degraded is not None
        assert (recall.degraded.embedder, recall.degraded.reason) == ("fake/topics", "the embedder is on strike")
        await room.memories.indexer.close()
        count = len(room.topics.asked)
        again = await room.memories.recall(OWN, "green tea", 5, "fake/topics")
        assert len(room.topics.asked) == count, "it is not asked"
        assert again.degraded is not None
        assert "left alone for a while: the embedder is on strike" in again.degraded.reason
        assert [hit.memory.text for hit in again.found] == ["Likes green tea."]
        room.topics.failure = None
        room.clock.pass_time(COOLDOWN_SECONDS + 1)
        assert (await room.memories.recall(OWN, "a drink", 5, "fake/topics")).degraded is None

    run(work)


def test_a_setting_with_an_unknown_provider_is_reported() -> None:
    async def work(room: Room) -> None:
        await room.add("Likes green tea.")
        recall = await room.memories.recall(OWN, "green tea", 5, "nobody/m")
        assert [hit.by for hit in recall.found] == ["text"]
        assert recall.degraded is not None
        assert "no provider is called `nobody`" in recall.degraded.reason

    run(work, Embedders())


def test_no_embedder_is_not_a_failure() -> None:
    async def work(room: Room) -> None:
        await room.add("Likes green tea.")
        recall = await room.memories.recall(OWN, "green tea", 5, "none")
        assert (len(recall.found), recall.by, recall.degraded) == (1, "text", None)

    run(work)


@pytest.mark.parametrize("fault", [refuses(500, b"boom"), Answer([b"<html>"], 200)])
async def test_a_failing_remote_embedder_degrades_the_recall_to_words(fault: Answer) -> None:
    async with FakeEndpoint(policy=lambda _: fault) as server:
        room = Room(Embedders(lambda _: EmbedderEndpoint(server.url)))
        await room.add("Likes green tea.")
        recall = await room.memories.recall(OWN, "green tea", 5, "fake/m")
        assert [hit.memory.text for hit in recall.found] == ["Likes green tea."]
        assert recall.degraded is not None
        assert "the embedder fake/m at http://127.0.0.1" in recall.degraded.reason
        await room.memories.close()


async def test_a_hanging_remote_embedder_degrades_the_recall_to_words() -> None:
    async with FakeEndpoint(policy=lambda _: Silence()) as server:
        room = Room(Embedders(lambda _: EmbedderEndpoint(server.url)), timeout_seconds=0.05)
        await room.add("Likes green tea.")
        recall = await room.memories.recall(OWN, "green tea", 5, "fake/m")
        assert [hit.memory.text for hit in recall.found] == ["Likes green tea."]
        assert recall.degraded is not None
        assert "did not answer within 0.05 s" in recall.degraded.reason
        await room.memories.close()


async def test_a_working_remote_embedder_finds_memories_by_meaning() -> None:
    topics = Topics()

    def policy(request: Request) -> Answer:
        return answer(*(topics._vector(text.lower()) for text in request.json["input"]))  # pyright: ignore[reportPrivateUsage] -- our own

    async with FakeEndpoint(policy=policy) as server:
        room = Room(Embedders(lambda _: EmbedderEndpoint(server.url)))
        await room.memories.start()
        await room.add("Likes green tea.", "Has a boat in the harbour.")
        assert await room.texts("a drink", "fake/m") == ["Likes green tea."]
        await room.memories.indexer.wait_until_idle()
        assert await room.texts("where to sail", "fake/m") == ["Has a boat in the harbour."]
        await room.memories.close()


def test_another_model_under_the_same_name_replaces_all_vectors() -> None:
    async def work(room: Room) -> None:
        await room.add("Likes green tea.", "Has a boat in the harbour.")
        await room.texts("drink")
        await room.memories.indexer.wait_until_idle()
        room.topics.wide = 6
        recall = await room.memories.recall(OWN, "green tea", 5, "local")
        assert [hit.memory.text for hit in recall.found] == ["Likes green tea."]
        await room.memories.indexer.wait_until_idle()
        assert (await room.read_overview()).dimensions == 6
        assert await room.texts("drink") == ["Likes green tea."]

    run(work)


def test_the_indexer_retries_ever_more_slowly() -> None:
    async def work(room: Room) -> None:
        await room.add("Likes green tea.")
        room.topics.failure = "not now"
        room.memories.catch_up(OWN, "local")
        await room.weary.wait()
        room.topics.failure = None
        await room.memories.indexer.wait_until_idle()
        assert room.pauses[:8] == [1, 2, 4, 8, 16, 32, 60, 60]
        assert await room.texts("drink") == ["Likes green tea."]

    run(work)


def test_a_refused_text_does_not_prevent_vectors_of_other_texts() -> None:
    async def work(room: Room) -> None:
        await room.add("Likes green tea.", "poison, in a harbour", "Has a boat in the harbour.")
        first = await room.memories.recall(OWN, "poison harbour", 5, "local")
        assert first.found[0].memory.text == "poison, in a harbour"
        await room.memories.indexer.wait_until_idle()
        room.clock.pass_time(COOLDOWN_SECONDS)
        assert room.pauses == []
        assert await room.texts("where to sail") == ["Has a boat in the harbour."]
        await room.add("Another poison.", "Sails in May.", prefix="new")
        recall = await room.memories.recall(OWN, "a drink", 5, "local")
        assert [hit.memory.text for hit in recall.found] == ["Likes green tea."]
        assert recall.degraded is None
        await room.memories.indexer.wait_until_idle()
        assert set(await room.texts("a sail")) == {"Has a boat in the harbour.", "Sails in May."}
        assert (await room.read_overview()).is_behind is False

    run(work)


ODD: dict[str, Callable[[Sequence[str]], Any]] = {
    "raises": lambda texts: 1 / 0,
    "nan": lambda texts: [[math.nan] * 4 for _ in texts],
    "zeros": lambda texts: [[0.0] * 4 for _ in texts],
    "empty": lambda texts: [[] for _ in texts],
    "few": lambda texts: [[1.0, 0.0]],
    "none": lambda texts: None,
    "nones": lambda texts: [None for _ in texts],
    "different": lambda texts: [[1.0] * (n + 1) for n, _ in enumerate(texts)],
}


@pytest.mark.parametrize("odd", ODD)
def test_word_search_works_with_any_failure_of_an_embedder(odd: str, caplog: pytest.LogCaptureFixture) -> None:
    class Odd(Topics):
        async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
            self.asked.append(list(texts))
            return ODD[odd](texts)

    async def work(room: Room) -> None:
        await room.memories.indexer.close()
        await room.add("Likes green tea.", "Has a boat.")
        for _ in range(2):
            recall = await room.memories.recall(OWN, "green tea", 5, "local")
            assert [hit.memory.text for hit in recall.found] == ["Likes green tea."]
            assert recall.degraded is not None
            assert "fake/topics" in recall.degraded.reason
        assert caplog.text.count("temporarily searched by words only") == 1

    run(work, One(Odd()))


def test_an_embedder_that_cannot_be_loaded_degrades_the_recall() -> None:
    def broken() -> bool:
        raise RuntimeError("numpy was built for another machine")

    async def work(room: Room) -> None:
        await room.add("Likes green tea.")
        recall = await room.memories.recall(OWN, "green tea", 5, "auto")
        assert len(recall.found) == 1
        assert recall.degraded is not None
        assert "another machine" in recall.degraded.reason
        room.memories.catch_up(OWN, "auto")

    run(work, Embedders(local_is_installed=broken))


def test_refused_texts_are_embedded_only_once() -> None:
    async def work(room: Room) -> None:
        await room.add(*(f"poison number {n}" for n in range(40)))
        room.memories.catch_up(OWN, "local")
        await room.memories.indexer.wait_until_idle()
        assert len(room.topics.asked) == 3 * 2 + 40
        assert room.pauses == []
        assert (await room.read_overview()).is_behind is False

    run(work)


def test_an_embedder_whose_dimensions_keep_changing_is_called_ever_more_rarely() -> None:
    class Growing(Topics):
        async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
            self.wide += 1
            return await super().embed(texts)

    async def work(room: Room) -> None:
        await room.add(*(f"tea {n}" for n in range(20)))
        room.memories.catch_up(OWN, "local")
        await room.weary.wait()
        assert room.pauses[:8] == [1, 2, 4, 8, 16, 32, 60, 60]

    run(work, One(Growing()))


def test_another_model_after_a_restart_replaces_the_old_vectors() -> None:
    async def work(room: Room) -> None:
        await room.add(*(f"old fact {n} about tea" for n in range(10)))
        room.memories.catch_up(OWN, "local")
        await room.memories.indexer.wait_until_idle()
        other = HybridMemories(room.store, One(Topics(wide=8)), room.clock, room.pause)
        await other.start()
        await room.add(*(f"new fact {n} to sail by" for n in range(40)), prefix="new")
        other.catch_up(OWN, "local")
        await other.indexer.wait_until_idle()
        assert room.pauses == []
        recall = await other.recall(OWN, "a drink", 10, "local")
        assert len(recall.found) == 10
        assert recall.by == "vectors"
        await other.close()

    run(work)


# ── Loading ──


class LoadableEmbedder(Topics):
    """One that is loaded when it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.is_loaded = False
        self.go = asyncio.Event()
        self.fault: Exception | None = None

    async def load(self) -> None:
        await self.go.wait()
        if self.fault is not None:
            raise self.fault
        self.is_loaded = True


async def test_a_message_does_not_wait_for_an_embedder_to_be_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.memory.search.LOADING_SECONDS", 0.01)

    topics = LoadableEmbedder()
    room = Room(One(topics))
    await room.add("Likes green tea.")
    for _ in range(2):
        recall = await room.memories.recall(OWN, "green things to drink", 5, "local")
        assert ([hit.by for hit in recall.found], recall.by, recall.degraded) == (["text"], "text", None)
        assert topics.asked == []
    topics.go.set()
    recall = await room.memories.recall(OWN, "a drink", 5, "local")
    assert ([hit.by for hit in recall.found], recall.by) == (["vectors"], "vectors")
    await room.memories.close()


async def test_an_embedder_that_cannot_be_loaded_is_reported_and_tried_again() -> None:
    topics = LoadableEmbedder()
    topics.fault = RuntimeError("built for another machine")
    topics.go.set()
    room = Room(One(topics), timeout_seconds=60)
    await room.add("Likes green tea.")
    recall = await room.memories.recall(OWN, "green tea", 5, "local")
    assert len(recall.found) == 1
    assert recall.degraded is not None
    assert "another machine" in recall.degraded.reason
    topics.fault = None
    room.clock.pass_time(COOLDOWN_SECONDS + 1)
    assert (await room.memories.recall(OWN, "a drink", 5, "local")).by == "vectors"
    await room.memories.close()


async def test_closing_does_not_wait_for_a_pause() -> None:
    room, paused = Room(), asyncio.Event()

    async def for_ever(seconds: float) -> None:
        paused.set()
        await asyncio.Event().wait()

    memories = HybridMemories(room.store, One(room.topics), room.clock, for_ever)
    await memories.start()
    await room.add("Likes green tea.")
    room.topics.failure = "not now"
    memories.catch_up(OWN, "local")
    await paused.wait()
    began = asyncio.get_running_loop().time()
    await memories.close()
    assert asyncio.get_running_loop().time() - began < 0.5


async def test_closing_does_not_wait_for_a_hanging_embedder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("treadle.memory.indexer.GRACE_SECONDS", 0.05)

    class Hanging(Topics):
        async def embed(self, texts: Sequence[str]) -> Sequence[Vector]:
            await asyncio.Event().wait()
            raise AssertionError

    database = open_database(":memory:")
    room = Room(One(Hanging()), database)
    await room.memories.start()
    await room.add("Likes green tea.")
    room.memories.catch_up(OWN, "local")
    async with asyncio.timeout(HANG_SECONDS):
        await room.memories.close()
    following = Room(None, database)  # the next process goes on
    await following.memories.start()
    following.memories.catch_up(OWN, "local")
    await following.memories.indexer.wait_until_idle()
    assert await following.texts("drink") == ["Likes green tea."]
    await following.memories.close()
