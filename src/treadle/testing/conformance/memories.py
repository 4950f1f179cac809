"""Checks for implementers of `ports.memory` and `ports.memory_index`."""

import math
import random
from collections.abc import Sequence
from typing import Any, Final

from treadle.domain.ids import AgentId, SessionId
from treadle.domain.memories import Memory, MemoryScope
from treadle.domain.text import fold_words
from treadle.domain.users import LOCAL_USER
from treadle.ports.memory import RecallExclusion
from treadle.ports.memory_index import MemoryHit, MemoryOverview, Pending, Term
from treadle.testing.conformance.store_harness import (
    AGENT,
    OTHER,
    OWN,
    FullStoreCheck,
    FullStoreHarness,
    MemoryStore,
    open_full_store,
)


def make_memory(number: int, text: str, agent: AgentId = AGENT, session: str | None = None) -> Memory:
    """Return a fact that a user has added."""
    session_id = None if session is None else SessionId(session)
    return Memory(
        memory_id=f"mem_{number}",
        agent_id=agent,
        kind="long_term",
        text=text,
        created_at=float(number),
        source="person",
        session_id=session_id,
    )


def make_unit_vector(*numbers: float) -> list[float]:
    """Return a vector of length 1."""
    length = math.hypot(*numbers)
    return [number / length for number in numbers]


class MemoryStoreUnderTest:
    """A store of memories with short query methods."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store

    async def read_overview(self, *asked: Any) -> MemoryOverview:
        """Return a summary of what is stored."""
        return await self.store.read(lambda view: view.read_overview(*asked))

    async def find_nearest(self, *asked: Any) -> Sequence[MemoryHit]:
        """Search by vector."""
        return await self.store.read(lambda view: view.find_nearest(*asked))

    async def near(self, *asked: Any) -> list[str]:
        """Return the texts of the nearest memories."""
        return [hit.memory.text for hit in await self.find_nearest(*asked)]

    async def list_unembedded(self, *asked: Any) -> Sequence[Pending]:
        """Return the memories without a vector."""
        return await self.store.read(lambda view: view.list_unembedded(*asked))

    async def find_matching(self, text: str, limit: int, *asked: Any, begins: bool = False) -> list[str]:
        """Return the ids of the memories that contain all words of one of the lines."""
        terms = [Term(fold_words(line), begins) for line in text.split("\n")]
        hits = await self.store.read(lambda view: view.find_matching(OWN, terms, limit, *asked))
        return [hit.memory.memory_id for hit in hits]

    async def embed(self, *vectors: Sequence[float], name: str = "test") -> None:
        """Store a vector for each memory without one."""
        await self.store.keep(
            OWN, name, list(zip(await self.list_unembedded(OWN, name, None, 1000), vectors, strict=True))
        )


# ── User actions ───────────────────────────────────────────────────────────────────────────────────


async def memories_are_added_once_listed_found_and_pinned(harness: FullStoreHarness) -> None:
    """A memory with an existing id is not new, nor a fact whose text exists apart from case, white space and the
    full stop. The newest come first."""
    async with open_full_store(harness) as desk:
        store = desk.memories
        first, same = make_memory(1, "one"), make_memory(2, " ONE. ")
        assert await store.add([first, same, first, make_memory(3, "three", OTHER)]) == 2
        assert await store.add([first]) == 0
        assert [item.memory_id for item in await store.list()] == ["mem_3", "mem_1"]
        assert [item.memory_id for item in await store.list(AGENT)] == ["mem_1"]
        assert [item.memory_id for item in await store.list(limit=1)] == ["mem_3"]
        assert list(await store.list(AGENT, "journal")) == []
        assert await store.find("mem_1") == first
        assert await store.find("mem_2") is None
        assert await store.pin("mem_1", True)
        assert not await store.pin("mem_2", True)
        found = await store.find("mem_1")
        assert found is not None
        assert found.pinned
        assert await store.read(lambda view: view.find_same(AGENT, LOCAL_USER, "One")) == "mem_1"
        assert await store.read(lambda view: view.find_same(OTHER, LOCAL_USER, "One")) is None


async def stored_memories_are_read_back_unchanged(harness: FullStoreHarness) -> None:
    """Every character of a text, and every field of a memory."""
    async with open_full_store(harness) as desk:
        texts = ["a\x00b \x1a0", "'); DROP TABLE memories; --", "\U0001f989 \u202e ä", "x" * 100_000]
        made = [
            Memory(
                memory_id=f"mem_{n}",
                agent_id=AGENT,
                kind="journal",
                text=text,
                created_at=n + 0.1,
                source="import",
                used_at=9.5,
                uses=3,
                pinned=True,
                session_id=SessionId("s"),
            )
            for n, text in enumerate(texts)
        ]
        assert await desk.memories.add(made) == len(made)
        assert list(await desk.memories.list()) == made[::-1]


async def a_forgotten_memory_leaves_no_words_or_vectors(harness: FullStoreHarness) -> None:
    """Its number is not reused: a new memory would get the vector of a forgotten one."""
    async with open_full_store(harness) as desk:
        shelf = MemoryStoreUnderTest(desk.memories)
        await shelf.store.add([make_memory(1, "old"), make_memory(2, "other")])
        await shelf.embed(make_unit_vector(1, 0), make_unit_vector(0, 1))
        assert await shelf.store.forget(["mem_1", "mem_9"]) == 1
        assert await shelf.store.forget(["mem_1"]) == 0
        assert await shelf.store.find("mem_1") is None
        assert await shelf.find_matching("old", 5) == []
        await shelf.store.add([make_memory(3, "new")])
        assert await shelf.near(OWN, "test", make_unit_vector(1, 0), 5) == ["other"]
        assert [item.memory.text for item in await shelf.list_unembedded(OWN, "test", 2, 5)] == ["new"]


# ── Words ──────────────────────────────────────────────────────────────────────────────────────────

IDENTIFIERS = (
    ("the code ERR_CONN_4711 again", "ERR_CONN_4711"),
    ("the code ERR_CONN_4712 again", "4712"),
    ("the column user_id", "user_id"),
    ("since v2.3.1 it works", "v2.3.1"),
    ("see /etc/relay/worker.toml", "/etc/relay/worker.toml"),
    ("see /etc/relay/driver.toml", "driver"),
    ("ein Café in Zürich", "nowhere\nzurich"),
    ("Ünïcödé", "UNICODE"),
    ("the \u0645\u0643\u062a\u0628\u0629 is open", "\u0645\u0643\u062a\u0628\u0629"),
    ("y" * 5000 + " is long", "y" * 5000),
)


async def identifiers_and_accents_are_found(harness: FullStoreHarness) -> None:
    """Any text can be found, and nothing of another agent's memories is."""
    async with open_full_store(harness) as desk:
        shelf = MemoryStoreUnderTest(desk.memories)
        await shelf.store.add([make_memory(n, text) for n, (text, _) in enumerate(IDENTIFIERS)])
        await shelf.store.add([make_memory(100 + n, text, OTHER) for n, (text, _) in enumerate(IDENTIFIERS)])
        for number, (_, query) in enumerate(IDENTIFIERS):
            assert await shelf.find_matching(query, 5) == [f"mem_{number}"], query


async def rare_words_rank_higher(harness: FullStoreHarness) -> None:
    """A memory with a rare word ranks above those with a common one, and one with both above all. The last word of
    a term may be a prefix on request."""
    async with open_full_store(harness) as desk:
        shelf = MemoryStoreUnderTest(desk.memories)
        await shelf.store.add([make_memory(n, f"the invoice number {n}") for n in range(10)])
        await shelf.store.add([make_memory(20, "a tuba"), make_memory(21, "the tuba invoices of last year")])
        assert (await shelf.find_matching("tuba\ninvoice", 3))[0] in ("mem_20", "mem_21")
        assert set((await shelf.find_matching("tuba\ninvoice", 3))[:2]) == {"mem_20", "mem_21"}
        assert (await shelf.find_matching("tuba\ninvoic", 3, begins=True))[0] == "mem_21"
        assert await shelf.find_matching("invoic", 30) == []
        assert len(await shelf.find_matching("invoic", 30, begins=True)) == 11
        assert await shelf.find_matching("tuba invoices", 30) == ["mem_21"], "all words of a term"
        lines = await shelf.store.read(lambda view: view.find_matching(OWN, [Term(("tuba", "a"))], 5))
        assert [hit.line for hit in lines] == [" a tuba "]


# ── Vectors ────────────────────────────────────────────────────────────────────────────────────────


async def the_nearest_come_first_and_one_session_can_be_left_out(harness: FullStoreHarness) -> None:
    """Scores are cosines. Only memories of this agent and this embedder are compared."""
    async with open_full_store(harness) as desk:
        shelf, own = MemoryStoreUnderTest(desk.memories), RecallExclusion(session=SessionId("ses_1"))
        await shelf.store.add(
            [make_memory(1, "east"), make_memory(2, "north", session="ses_1"), make_memory(3, "north-east")]
        )
        await shelf.embed(
            make_unit_vector(1, 0, 0),
            make_unit_vector(0, 1, 0),
            [number * 7 for number in make_unit_vector(1, 1, 0)],
        )
        found = await shelf.find_nearest(OWN, "test", make_unit_vector(0.1, 1, 0), 5)
        assert [hit.memory.text for hit in found] == ["north", "north-east", "east"]
        for hit, likeness in zip(found, (0.995, 0.774, 0.0995), strict=True):
            assert hit.likeness is not None
            assert abs(hit.likeness - likeness) < 0.01
        assert await shelf.near(OWN, "test", make_unit_vector(0.1, 1, 0), 1) == ["north"]
        assert await shelf.near(OWN, "test", make_unit_vector(0.1, 1, 0), 5, own) == ["north-east", "east"]
        assert await shelf.near(MemoryScope(OTHER, LOCAL_USER), "test", make_unit_vector(0, 1, 0), 5) == []
        assert await shelf.near(OWN, "another", make_unit_vector(0, 1, 0), 5) == []
        assert await shelf.find_matching("north", 5, own) == ["mem_3"]


async def excluded_memories_do_not_crowd_out_the_rest(harness: FullStoreHarness) -> None:
    """However many there are, and however well they match."""
    async with open_full_store(harness) as desk:
        shelf, own = MemoryStoreUnderTest(desk.memories), SessionId("ses_1")
        await shelf.store.add([make_memory(n, f"north {n}", session="ses_1") for n in range(700)])
        await shelf.store.add(
            [make_memory(1000, "north as well", session="ses_2"), make_memory(1001, "north", session="ses_1")]
        )
        await shelf.embed(
            *[make_unit_vector(0, 1, 0)] * 700, make_unit_vector(0.5, 1, 0), make_unit_vector(0.6, 1, 0)
        )

        async def found(without: RecallExclusion) -> tuple[list[str], list[str]]:
            near = await shelf.find_nearest(OWN, "test", make_unit_vector(0, 1, 0), 2, without)
            return await shelf.find_matching("north", 2, without), [hit.memory.memory_id for hit in near]

        assert await found(RecallExclusion(session=own)) == (["mem_1000"], ["mem_1000"])
        assert await found(RecallExclusion(frozenset(("mem_1000",)), own)) == ([], [])
        for without in (
            RecallExclusion(session=own, since=700.0),
            RecallExclusion(frozenset(("mem_699",)), own, 1000.5),
        ):
            for ids in await found(without):
                assert not {"mem_1001", *without.ids} & set(ids)
                assert len(ids) == 2


async def the_approximate_search_agrees_with_an_exact_one(harness: FullStoreHarness) -> None:
    """At least nineteen of twenty of the five nearest are found among many."""
    chance, dimensions = random.Random(1), 96

    def near(vector: Sequence[float], spread: float) -> list[float]:
        return make_unit_vector(*(number + chance.gauss(0, spread) for number in vector))

    centres = [make_unit_vector(*(chance.gauss(0, 1) for _ in range(dimensions))) for _ in range(20)]
    vectors = [near(chance.choice(centres), 0.15) for _ in range(1500)]
    async with open_full_store(harness) as desk:
        shelf, agreed = MemoryStoreUnderTest(desk.memories), 0
        await shelf.store.add([make_memory(n, f"number {n}") for n in range(len(vectors))])
        while pending := await shelf.list_unembedded(OWN, "test", dimensions, 500):
            made = [(item, vectors[int(item.memory.memory_id[4:])]) for item in pending]
            await shelf.store.keep(OWN, "test", made)
        for _ in range(10):
            asked = near(chance.choice(centres), 0.3)
            exact = sorted(range(len(vectors)), key=lambda n: -sum(map(float.__mul__, asked, vectors[n])))[:5]
            found = await shelf.near(OWN, "test", asked, 5)
            agreed += len({f"number {n}" for n in exact} & set(found))
        assert agreed >= 48, f"{agreed} of 50"


async def vectors_of_other_dimensions_are_recreated(harness: FullStoreHarness) -> None:
    """The old vectors are removed when the first new one arrives. Until then, none is compared."""
    async with open_full_store(harness) as desk:
        shelf = MemoryStoreUnderTest(desk.memories)
        await shelf.store.add([make_memory(1, "one"), make_memory(2, "two")])
        await shelf.embed(make_unit_vector(1, 0), make_unit_vector(0, 1))
        assert list(await shelf.list_unembedded(OWN, "test", 2, 5)) == []
        assert await shelf.near(OWN, "test", make_unit_vector(1, 0, 0), 5) == [], "not comparable"
        again = await shelf.list_unembedded(OWN, "test", 3, 5)
        assert len(again) == 2
        await shelf.store.keep(OWN, "test", [(again[1], make_unit_vector(0, 1, 0))])
        assert again[0] in await shelf.list_unembedded(OWN, "test", 3, 5), "also those that came before"
        await shelf.store.keep(OWN, "test", [(again[0], make_unit_vector(1, 0, 0)), (again[1], None)])
        assert await shelf.near(OWN, "test", make_unit_vector(1, 0, 0), 5) == ["one", "two"]
        assert list(await shelf.list_unembedded(OWN, "test", 3, 5)) == []
        assert (await shelf.read_overview(OWN, "test")).dimensions == 3


async def a_memory_without_a_vector_is_not_retried(harness: FullStoreHarness) -> None:
    """Even if every attempt was refused. Memories forgotten meanwhile stay forgotten."""
    async with open_full_store(harness) as desk:
        shelf = MemoryStoreUnderTest(desk.memories)
        await shelf.store.add([make_memory(1, "one"), make_memory(2, "two"), make_memory(3, "three")])
        first, *others = await shelf.list_unembedded(OWN, "test", None, 5)
        await shelf.store.keep(OWN, "test", [(first, None)])
        assert (await shelf.read_overview(OWN, "test")).dimensions is None
        assert list(await shelf.list_unembedded(OWN, "test", 2, 5)) == others
        await shelf.store.forget(["mem_2"])
        await shelf.store.keep(OWN, "test", [(item, make_unit_vector(1, 0)) for item in others])
        assert list(await shelf.list_unembedded(OWN, "test", 2, 5)) == []
        assert (await shelf.read_overview(OWN, "test")).dimensions == 2
        assert await shelf.near(OWN, "test", make_unit_vector(1, 0), 5) == ["three"]


# ── Summary ────────────────────────────────────────────────────────────────────────────────────────


async def a_summary_shows_what_is_stored(harness: FullStoreHarness) -> None:
    """Whether there is anything, the latest notes, and whether everything has vectors."""
    async with open_full_store(harness) as desk:
        shelf = MemoryStoreUnderTest(desk.memories)
        assert (await shelf.read_overview(OWN, "test")).is_empty
        notes = [Memory(f"mem_n{n}", AGENT, "journal", f"note {n}", float(n)) for n in range(5)]
        await shelf.store.add([*notes, make_memory(1, "one")])
        overview = await shelf.read_overview(OWN, "test")
        assert (overview.is_empty, overview.dimensions, overview.is_behind) == (False, None, True)
        assert [note.text for note in overview.notes] == ["note 2", "note 3", "note 4"]
        await shelf.embed(*[make_unit_vector(1, 0)] * 6)
        overview = await shelf.read_overview(OWN, "test")
        assert (overview.dimensions, overview.is_behind) == (2, False)
        assert not (await shelf.read_overview(OWN, None)).is_behind
        assert (await shelf.read_overview(MemoryScope(OTHER, LOCAL_USER), "test")).is_empty


async def notes_of_one_session_do_not_hide_others(harness: FullStoreHarness) -> None:
    """Nor do notes that were shown before."""
    async with open_full_store(harness) as desk:
        shelf, own = MemoryStoreUnderTest(desk.memories), SessionId("ses_1")
        notes = [Memory(f"mem_n{n}", AGENT, "journal", "other", float(n)) for n in range(4)]
        mine = [Memory(f"mem_o{n}", AGENT, "journal", "own", 10.0 + n, session_id=own) for n in range(4)]
        await shelf.store.add([*notes, *mine])

        async def shown(without: RecallExclusion) -> list[str]:
            return [note.memory_id for note in (await shelf.read_overview(OWN, None, without)).notes]

        assert await shown(RecallExclusion(session=own)) == ["mem_n1", "mem_n2", "mem_n3"]
        assert await shown(RecallExclusion(session=own, since=11.0)) == ["mem_n2", "mem_n3", "mem_o0"]
        assert await shown(RecallExclusion(frozenset(("mem_n3",)), own)) == ["mem_n0", "mem_n1", "mem_n2"]


CHECKS: Final[tuple[FullStoreCheck, ...]] = (
    memories_are_added_once_listed_found_and_pinned,
    stored_memories_are_read_back_unchanged,
    a_forgotten_memory_leaves_no_words_or_vectors,
    identifiers_and_accents_are_found,
    rare_words_rank_higher,
    the_nearest_come_first_and_one_session_can_be_left_out,
    excluded_memories_do_not_crowd_out_the_rest,
    the_approximate_search_agrees_with_an_exact_one,
    vectors_of_other_dimensions_are_recreated,
    a_memory_without_a_vector_is_not_retried,
    a_summary_shows_what_is_stored,
    notes_of_one_session_do_not_hide_others,
)
