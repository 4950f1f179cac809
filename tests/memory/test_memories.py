"""Recall on real SQLite: which memories are found, and at what cost."""

import asyncio
import sys
import unicodedata
from collections.abc import Sequence

import pytest

from tests.memory.room import AGENT, OWN, Room, run
from tests.memory.test_embedders import needs_local
from treadle.domain.ids import AgentId, SessionId
from treadle.domain.memories import Memory
from treadle.domain.users import LOCAL_USER
from treadle.memory.embedders import Embedders
from treadle.memory.indexer import BATCH_SIZE
from treadle.memory.local_embedder import NAME, PACKAGE
from treadle.memory.search import MAX_EMBEDDED_WITH_QUERY
from treadle.ports.memory import RecallExclusion, Vector
from treadle.ports.memory_index import Term


def test_an_agent_without_memories_costs_one_read_and_no_embedding() -> None:
    async def work(room: Room) -> None:
        recall = await room.memories.recall(OWN, "what do I drink?", 5, "local")
        assert (recall.found, recall.notes, recall.degraded) == ((), (), None)
        assert room.writer.reads == 1
        assert room.topics.asked == []

    run(work)


def test_small_talk_calls_no_embedder() -> None:
    async def work(room: Room) -> None:
        await room.add("Likes tea.")
        assert await room.texts("ok, thanks!") == []
        assert await room.texts("drink", limit=0) == []
        assert room.topics.asked == []

    run(work)


def test_a_new_memory_is_found_by_its_meaning_at_once() -> None:
    async def work(room: Room) -> None:
        await room.add("Likes green tea.", "Has a boat in the harbour.")
        recall = await room.memories.recall(OWN, "which drink?", 5, "local")
        assert [(hit.memory.text, hit.by) for hit in recall.found] == [("Likes green tea.", "vectors")]
        assert recall.by == "vectors"
        assert len(room.topics.asked) == 1, "the memories go with the question"
        await room.memories.indexer.wait_until_idle()
        assert (await room.read_overview()).is_behind is False
        assert await room.texts("which drink?") == ["Likes green tea."]

    run(work)


def test_concurrent_recalls_embed_a_new_memory_once() -> None:
    async def work(room: Room) -> None:
        await room.add("Likes green tea.")
        await room.texts("which drink?")
        await room.memories.indexer.wait_until_idle()
        await room.add("Has a boat in the harbour.", prefix="new")
        gate, embed = asyncio.Event(), room.topics.embed

        async def slow(texts: Sequence[str]) -> Sequence[Vector]:
            await gate.wait()
            return await embed(texts)

        room.topics.embed = slow
        room.topics.asked.clear()
        asking = [asyncio.ensure_future(room.texts("where to sail the boat")) for _ in range(5)]
        await asyncio.sleep(0)
        gate.set()
        assert await asyncio.gather(*asking) == [["Has a boat in the harbour."]] * 5
        assert sum(map(len, room.topics.asked)) == 5 + 1

    run(work)


def test_many_new_memories_are_left_to_the_indexer_and_found_by_words_meanwhile() -> None:
    async def work(room: Room) -> None:
        await room.add("Likes green tea.", *(f"compiler note {n}" for n in range(3 * BATCH_SIZE)))
        recall = await room.memories.recall(OWN, "green things to drink", 5, "local")
        assert [hit.memory.text for hit in recall.found] == ["Likes green tea."]
        assert (recall.by, recall.degraded) == ("text", None)
        assert room.topics.asked == [], "there is nothing to compare with yet"
        await room.memories.indexer.wait_until_idle()
        assert [len(texts) for texts in room.topics.asked] == [BATCH_SIZE, BATCH_SIZE, BATCH_SIZE, 1]
        assert await room.texts("which drink?") == ["Likes green tea."]

    run(work)


def test_new_memories_without_vectors_are_found_among_many_old_ones() -> None:
    async def work(room: Room) -> None:
        await room.add(*(f"compiler note {n}" for n in range(BATCH_SIZE)))
        room.memories.catch_up(OWN, "local")
        await room.memories.indexer.wait_until_idle()
        await room.add(*(f"tea number {n}" for n in range(MAX_EMBEDDED_WITH_QUERY + 1)), prefix="new")
        found = await room.memories.recall(OWN, "tea number 3", 5, "local")
        assert found.by == "both"
        assert found.found[0].memory.text == "tea number 3"

    run(work)


def test_identifiers_are_found_in_addition_to_meanings() -> None:
    async def work(room: Room) -> None:
        await room.add("The compiler says E4711.", "The compiler says E4712.", "Likes tea.")
        recall = await room.memories.recall(OWN, "compiler error E4712", 5, "local")
        assert [hit.memory.text for hit in recall.found][:1] == ["The compiler says E4712."]
        assert (recall.by, recall.found[0].by) == ("both", "both")

    run(work)


def test_the_current_session_and_notes_in_the_prompt_are_not_recalled() -> None:
    async def work(room: Room) -> None:
        await room.add("tea one", session="ses_1")
        await room.add("tea two", session="ses_2", prefix="b")
        notes = [Memory(f"n{n}", AGENT, "journal", f"tea note {n}", float(n)) for n in range(4)]
        await room.store.add(notes)
        for _ in range(2):  # before and after the vectors are kept
            recall = await room.memories.recall(OWN, "tea", 5, "local", RecallExclusion(session=SessionId("ses_1")))
            assert {hit.memory.text for hit in recall.found} == {"tea two", "tea note 0"}
            assert [note.text for note in recall.notes] == ["tea note 1", "tea note 2", "tea note 3"]
            await room.memories.indexer.wait_until_idle()

    run(work)


@pytest.mark.parametrize(
    "text",
    [
        "서울 사무실 주소는 강남구입니다", "Большой чайник стоит", "їжак живе тут", "Αθήνα είναι πρωτεύουσα",
        "đường Nguyễn Huệ", "أحمد يحب الشاي", "הוא גר בתל אביב", "Łódź jest w Polsce", "smørrebrød", "東京オフィス",
        "ガラス", "हिन्दी सीखना", "தமிழ் மொழி", "ภาษาไทย", "Goethestraße", "The ﬁle is ﬂat", "İstanbul office", "茶",
    ],
)  # fmt: skip
def test_words_of_every_script_are_found_in_any_case_and_unicode_form(text: str) -> None:
    async def work(room: Room) -> None:
        await room.add("something else entirely", text)
        for asked in (text, text.split()[-1], text.upper(), unicodedata.normalize("NFD", text)):
            assert await room.texts(asked, "none") == [text], asked

    run(work)


def test_a_recall_by_words_is_one_read() -> None:
    async def work(room: Room) -> None:
        await room.add("Likes tea.", session="ses_2")
        reads = room.writer.reads
        found = await room.memories.recall(
            OWN, "which tea?", 5, "none", RecallExclusion(session=SessionId("ses_1"))
        )
        assert [hit.memory.text for hit in found.found] == ["Likes tea."]
        assert room.writer.reads == reads + 1

    run(work)


def test_a_long_message_searches_for_a_few_rare_words() -> None:
    async def work(room: Room) -> None:
        await room.add(*(f"tea {n} of the harbour" for n in range(1500)), "the compiler of Zanzibar")
        texts = await room.texts("harbour harbour tea " + "and tea " * 900 + " compiler Zanzibar", "none")
        assert len(texts) == 5
        assert await room.texts("harbour tea compiler in Zanzibar?", "none", 1) == ["the compiler of Zanzibar"]
        terms = [Term((word,)) for word in ("harbour", "tea", "zanzibar")]
        best = await room.store.read(lambda view: view.find_matching(OWN, terms, 3))
        assert best[0].memory.text == "the compiler of Zanzibar", "what is rare is not crowded out"

    run(work)


# ── Twins ──


def test_a_duplicate_is_found_by_its_normalised_text() -> None:
    async def work(room: Room) -> None:
        assert await room.memories.find_duplicate(AGENT, LOCAL_USER, "Likes tea.") is None
        await room.add("The user likes green tea in the morning.", "The relay listens on port 8080.")
        await room.store.add([Memory("n1", AGENT, "journal", "The user sails on Sundays.", 0.0)])
        reads = room.writer.reads
        assert (
            await room.memories.find_duplicate(AGENT, LOCAL_USER, " the user likes GREEN  tea in the morning!")
            == "mem_0"
        )
        assert room.writer.reads == reads + 1
        assert room.topics.asked == [], "no embedder is asked"
        for other in ("The user likes the green tea in the morning.", "The relay listens on port 8081."):
            assert await room.memories.find_duplicate(AGENT, LOCAL_USER, other) is None
        assert await room.memories.find_duplicate(AGENT, LOCAL_USER, "The user sails on Sundays.") is None, (
            "a note is not a fact"
        )
        assert (
            await room.memories.find_duplicate(
                AgentId("agt_2"), LOCAL_USER, "The user likes green tea in the morning."
            )
            is None
        )
        assert [item.memory_id for item in await room.memories.latest(OWN, 1)] == ["mem_1"]

    run(work)


# ── The local embedder, for real ──


@needs_local
def test_the_local_embedder_is_not_loaded_if_there_is_nothing_to_compare(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def work(room: Room) -> None:
        monkeypatch.delitem(sys.modules, PACKAGE, raising=False)
        assert await room.texts("anything at all", "auto") == []
        assert PACKAGE not in sys.modules

    run(work, Embedders())


@needs_local
def test_meanings_are_found_with_the_local_embedder() -> None:
    async def work(room: Room) -> None:
        await room.add(
            "The children go to bed at eight.", "The car needs new tyres.", "E4711 means that the disk is full."
        )
        assert (await room.texts("when do the kids sleep?", "auto"))[:1] == ["The children go to bed at eight."]
        await room.memories.indexer.wait_until_idle()
        assert (await room.texts("when do the kids sleep?", "auto"))[:1] == ["The children go to bed at eight."]
        assert (await room.texts("we get E4711", "auto"))[:1] == ["E4711 means that the disk is full."]
        assert await room.texts("translate this sentence into Finnish", "auto") == []
        assert (await room.read_overview(NAME)).dimensions == 512

    run(work, Embedders(), timeout_seconds=60)
