"""Memories on SQLite: kept with their events, found by words and vectors, and gone when they are forgotten."""

import asyncio
import math
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.stores.test_faults import process_on
from treadle.domain.events import MemorySaved
from treadle.domain.identity import AgentId, SessionId
from treadle.domain.memories import Memory
from treadle.domain.words import folded
from treadle.ports.memory import Without
from treadle.ports.memory_index import Glance, Hit, Pending, Term, VectorsUnavailable
from treadle.stores.sqlite import memory as storing
from treadle.stores.sqlite.connection import SQL, open_database, open_reader
from treadle.stores.sqlite.memory import SqliteMemories
from treadle.stores.sqlite.writer import InlineWriter, ThreadWriter
from treadle.testing.conformance.store import Process, Recorder

AGENT = AgentId("agt_conformance")
OTHER = AgentId("agt_other")


def memory(number: int, text: str, agent: AgentId = AGENT, session: str | None = None) -> Memory:
    session_id = None if session is None else SessionId(session)
    return Memory(f"mem_{number}", agent, "long_term", text, float(number), "person", session_id=session_id)


def in_memory() -> SqliteMemories:
    return SqliteMemories(InlineWriter(open_database(":memory:")))


@asynccontextmanager
async def on_file(path: Path) -> AsyncGenerator[SqliteMemories, None]:
    writer = ThreadWriter(open_database(str(path)), open_reader(str(path)), str(path), Recorder().lost)
    yield SqliteMemories(writer)
    await writer.close()


def unit(*numbers: float) -> list[float]:
    length = math.hypot(*numbers)
    return [number / length for number in numbers]


async def glance_at(store: SqliteMemories, *asked: Any) -> Glance:
    return await store.read(lambda view: view.glance(*asked))


async def nearest(store: SqliteMemories, *asked: Any) -> Sequence[Hit]:
    return await store.read(lambda view: view.nearest(*asked))


async def pending_of(store: SqliteMemories, *asked: Any) -> Sequence[Pending]:
    return await store.read(lambda view: view.pending(*asked))


async def matching(store: SqliteMemories, agent: AgentId, text: str, limit: int, *asked: Any) -> list[Memory]:
    """Those that have all words of one of the lines."""
    terms = [Term(folded(line)) for line in text.split("\n")]
    hits = await store.read(lambda view: view.matching(agent, terms, limit, *asked))
    return [hit.memory for hit in hits]


async def embedded(store: SqliteMemories, vectors: Sequence[Sequence[float]], name: str = "test") -> None:
    pending = await pending_of(store, AGENT, name, None, 1000)
    await store.keep(AGENT, name, list(zip(pending, vectors, strict=True)))


# ── What people do ──


def test_add_list_find_and_pin() -> None:
    async def run() -> None:
        store = in_memory()
        first, same = memory(1, "one"), memory(2, " ONE. ")
        assert await store.add([first, same, first, memory(3, "three", OTHER)]) == 2
        assert await store.add([first]) == 0
        assert [item.memory_id for item in await store.list()] == ["mem_3", "mem_1"]
        assert [item.memory_id for item in await store.list(AGENT)] == ["mem_1"]
        assert await store.list(AGENT, "journal") == []
        assert await store.find("mem_1") == first
        assert await store.find("mem_2") is None
        assert await store.pin("mem_1", True)
        assert not await store.pin("mem_2", True)
        found = await store.find("mem_1")
        assert found is not None
        assert found.pinned
        assert await store.read(lambda view: view.same(AGENT, "One")) == "mem_1"

    asyncio.run(run())


def files_with(folder: Path, needle: bytes) -> list[str]:
    return [file.name for file in folder.iterdir() if needle in file.read_bytes().lower()]


def test_forgetting_leaves_no_trace_in_the_file(tmp_path: Path) -> None:
    """Of text, of words, of vectors; in whatever order, and however the rows have moved about meanwhile."""
    chance = random.Random(4)
    words = [f"zq{number:04}xj" for number in range(120)]
    texts = {word: f"Something about {word}, {'and more ' * chance.randint(0, 60)}" for word in words}

    async def fill() -> list[bytes]:
        async with on_file(tmp_path / "t.db") as store:
            await store.add([memory(n, texts[word]) for n, word in enumerate(words)])
            vectors = [unit(*(chance.gauss(0, 1) for _ in range(64))) for _ in words]
            await embedded(store, vectors)
            for n in range(0, len(words), 3):
                await store.pin(f"mem_{n}", True)
            return [storing._packed(vector)[1] for vector in vectors]  # pyright: ignore[reportPrivateUsage] -- the very bytes that are stored

    async def forget(numbers: list[int]) -> None:
        async with on_file(tmp_path / "t.db") as store:
            assert await store.forget([f"mem_{n}" for n in numbers]) == len(numbers)
            assert await store.forget([f"mem_{n}" for n in numbers]) == 0

    packed = asyncio.run(fill())
    order = list(range(len(words)))
    chance.shuffle(order)
    for part in (order[:40], order[40:60], order[60:]):
        asyncio.run(forget(part))
        for n in part:
            assert files_with(tmp_path, words[n].encode()) == []
            assert files_with(tmp_path, packed[n].lower()) == []


def test_a_number_is_never_given_twice() -> None:
    """Or a new memory would have the vector of one that was forgotten."""

    async def run() -> None:
        store = in_memory()
        await store.add([memory(1, "old")])
        await embedded(store, [unit(1, 0)])
        await store.forget(["mem_1"])
        await store.add([memory(2, "new")])
        assert await nearest(store, AGENT, "test", unit(1, 0), 5) == []
        assert [item.memory.text for item in await pending_of(store, AGENT, "test", 2, 5)] == ["new"]

    asyncio.run(run())


# ── Finding ──


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("the code ERR_CONN_4711 again", "ERR_CONN_4711"),
        ("the code ERR_CONN_4711 again", "4711"),
        ("the column user_id", "user_id"),
        ("since v2.3.1 it works", "v2.3.1"),
        ("see /etc/relay/worker.toml", "/etc/relay/worker.toml"),
        ("see /etc/relay/worker.toml", "worker"),
        ("ein Café in Zürich", "nowhere\nzurich"),
        ("Ünïcödé", "UNICODE"),
    ],
)
def test_identifiers_and_accents_are_found(text: str, query: str) -> None:
    async def run() -> None:
        store = in_memory()
        await store.add([memory(1, text), memory(2, "nothing of the kind"), memory(3, text, OTHER)])
        assert [item.memory_id for item in await matching(store, AGENT, query, 5)] == ["mem_1"]

    asyncio.run(run())


def test_the_nearest_come_first_and_one_session_can_be_left_out() -> None:
    async def run() -> None:
        store = in_memory()
        await store.add([memory(1, "east"), memory(2, "north", session="ses_1"), memory(3, "north-east")])
        await embedded(store, [unit(1, 0, 0), unit(0, 1, 0), unit(1, 1, 0)])
        found = await nearest(store, AGENT, "test", unit(0.1, 1, 0), 5)
        assert [hit.memory.text for hit in found] == ["north", "north-east", "east"]
        assert found[0].likeness == pytest.approx(0.995, abs=0.01)
        found = await nearest(store, AGENT, "test", unit(0.1, 1, 0), 5, Without(session=SessionId("ses_1")))
        assert [hit.memory.text for hit in found] == ["north-east", "east"]
        assert await nearest(store, OTHER, "test", unit(0, 1, 0), 5) == ()
        assert await nearest(store, AGENT, "another", unit(0, 1, 0), 5) == ()
        own = Without(session=SessionId("ses_1"))
        assert [item.text for item in await matching(store, AGENT, "north", 5, own)] == ["north-east"]

    asyncio.run(run())


def test_what_is_not_wanted_does_not_stand_in_the_way_of_the_rest() -> None:
    async def run() -> None:
        store = in_memory()
        await store.add([memory(n, f"north {n}", session="ses_1") for n in range(700)])
        await store.add([memory(1000, "north as well", session="ses_2"), memory(1001, "north", session="ses_1")])
        await embedded(store, [*[unit(0, 1, 0)] * 700, unit(0.5, 1, 0), unit(0.6, 1, 0)])
        own = Without(session=SessionId("ses_1"))
        for wanted, found in (
            (own, ["mem_1000"]),
            (Without(frozenset(("mem_1000",)), SessionId("ses_1")), []),
            (Without(session=SessionId("ses_1"), since=700.0), ["mem_699", "mem_698"]),
            (Without(frozenset(("mem_699",)), SessionId("ses_1"), since=1000.5), ["mem_698", "mem_697"]),
        ):
            words = await matching(store, AGENT, "north", 2, wanted)
            near = await nearest(store, AGENT, "test", unit(0, 1, 0), 2, wanted)
            if wanted.since == 0:
                assert [item.memory_id for item in words] == found
                assert [hit.memory.memory_id for hit in near] == found
            else:
                assert not {"mem_1001", *wanted.ids} & {item.memory_id for item in words}
                assert not {"mem_1001", *wanted.ids} & {hit.memory.memory_id for hit in near}
                assert len(words) == len(near) == 2

    asyncio.run(run())


def test_notes_of_the_own_session_do_not_hide_those_of_others() -> None:
    async def run() -> None:
        store, own = in_memory(), SessionId("ses_1")
        notes = [Memory(f"mem_n{n}", AGENT, "journal", "other", float(n)) for n in range(4)]
        await store.add(
            [*notes, *[Memory(f"mem_o{n}", AGENT, "journal", "own", 10.0 + n, session_id=own) for n in range(4)]]
        )

        async def shown(without: Without) -> list[str]:
            return [note.memory_id for note in (await glance_at(store, AGENT, None, without)).notes]

        assert await shown(Without(session=own)) == ["mem_n1", "mem_n2", "mem_n3"]
        assert await shown(Without(session=own, since=11.0)) == ["mem_n2", "mem_n3", "mem_o0"]
        assert await shown(Without(frozenset(("mem_n3",)), own)) == ["mem_n0", "mem_n1", "mem_n2"]

    asyncio.run(run())


def test_a_space_of_nothing_but_refusals_is_of_use() -> None:
    async def run() -> None:
        store = in_memory()
        await store.add([memory(1, "one"), memory(2, "two")])
        first, second = await pending_of(store, AGENT, "test", None, 5)
        await store.keep(AGENT, "test", [(first, None)])
        assert (await glance_at(store, AGENT, "test")).dimensions is None
        assert await pending_of(store, AGENT, "test", 2, 5) == [second]
        await store.keep(AGENT, "test", [(second, unit(1, 0))])
        assert await pending_of(store, AGENT, "test", 2, 5) == []
        assert (await glance_at(store, AGENT, "test")).dimensions == 2

    asyncio.run(run())


def test_codes_choose_what_an_exact_search_would_find() -> None:
    chance, dimensions = random.Random(1), 96

    def near(vector: Sequence[float], spread: float) -> list[float]:
        return unit(*(number + chance.gauss(0, spread) for number in vector))

    centres = [unit(*(chance.gauss(0, 1) for _ in range(dimensions))) for _ in range(20)]
    vectors = [near(chance.choice(centres), 0.15) for _ in range(3000)]

    async def run() -> float:
        store, agreed = in_memory(), 0
        await store.add([memory(n, f"number {n}") for n in range(len(vectors))])
        while pending := await pending_of(store, AGENT, "test", dimensions, 500):
            await store.keep(AGENT, "test", [(item, vectors[int(item.memory.memory_id[4:])]) for item in pending])
        for _ in range(20):
            asked = near(chance.choice(centres), 0.3)
            exact = sorted(range(len(vectors)), key=lambda n: -sum(map(float.__mul__, asked, vectors[n])))[:5]
            found = await nearest(store, AGENT, "test", asked, 5)
            agreed += len({f"mem_{n}" for n in exact} & {hit.memory.memory_id for hit in found})
        return agreed / 100

    assert asyncio.run(run()) >= 0.95


def test_vectors_of_other_dimensions_are_made_anew() -> None:
    async def run() -> None:
        store = in_memory()
        await store.add([memory(1, "one"), memory(2, "two")])
        await embedded(store, [unit(1, 0), unit(0, 1)])
        assert await pending_of(store, AGENT, "test", 2, 5) == []
        assert await nearest(store, AGENT, "test", unit(1, 0, 0), 5) == (), "not comparable"
        again = await pending_of(store, AGENT, "test", 3, 5)
        assert len(again) == 2
        await store.keep(AGENT, "test", [(again[1], unit(0, 1, 0))])
        assert len(await pending_of(store, AGENT, "test", 3, 5)) == 2, "all, also those that came before"
        await store.keep(AGENT, "test", [(again[0], unit(1, 0, 0)), (again[1], None)])
        assert [hit.memory.text for hit in await nearest(store, AGENT, "test", unit(1, 0, 0), 5)] == ["one", "two"]
        assert await pending_of(store, AGENT, "test", 3, 5) == [], "one that gets no vector is not asked for again"
        assert (await glance_at(store, AGENT, "test")).dimensions == 3

    asyncio.run(run())


def test_a_vector_for_what_was_forgotten_meanwhile_is_not_kept() -> None:
    async def run() -> None:
        store = in_memory()
        await store.add([memory(1, "one"), memory(2, "two")])
        pending = await pending_of(store, AGENT, "test", None, 5)
        await store.forget(["mem_1"])
        await store.keep(AGENT, "test", [(item, unit(1, 0)) for item in pending])
        assert [hit.memory.text for hit in await nearest(store, AGENT, "test", unit(1, 0), 5)] == ["two"]

    asyncio.run(run())


def test_a_glance() -> None:
    async def run() -> None:
        store = in_memory()
        assert (await glance_at(store, AGENT, "test")).is_empty
        notes = [Memory(f"mem_n{n}", AGENT, "journal", f"note {n}", float(n)) for n in range(5)]
        await store.add([*notes, memory(1, "one")])
        glance = await glance_at(store, AGENT, "test")
        assert (glance.is_empty, glance.dimensions, glance.is_behind) == (False, None, True)
        assert [note.text for note in glance.notes] == ["note 2", "note 3", "note 4"]
        await embedded(store, [unit(1, 0)] * 6)
        glance = await glance_at(store, AGENT, "test")
        assert (glance.dimensions, glance.is_behind) == (2, False)

    asyncio.run(run())


def test_a_platform_without_the_extension_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import sqlite_vec  # pyright: ignore[reportMissingTypeStubs] -- it has none

    monkeypatch.setattr(sqlite_vec, "loadable_path", lambda: str(tmp_path / "nowhere"))

    async def run() -> None:
        async with on_file(tmp_path / "t.db") as store:
            await store.add([memory(1, "one")])
            await embedded(store, [unit(1, 0)])
            with pytest.raises(VectorsUnavailable, match="sqlite-vec could not be loaded"):
                await nearest(store, AGENT, "test", unit(1, 0), 5)
            assert [item.text for item in await matching(store, AGENT, "one", 5)] == ["one"]

    asyncio.run(run())


def test_an_extension_cannot_be_loaded_afterwards(tmp_path: Path) -> None:
    """Only while ours is: SQL must not be able to load code."""

    async def run() -> None:
        connection = open_database(":memory:")
        store = SqliteMemories(InlineWriter(connection))
        await store.add([memory(1, "one")])
        await embedded(store, [unit(1, 0)])
        await nearest(store, AGENT, "test", unit(1, 0), 5)
        with pytest.raises(apsw.Error, match="not authorized"):
            connection.execute("SELECT load_extension('x')").fetchall()

    asyncio.run(run())


def test_many_writers_and_readers_at_once(tmp_path: Path) -> None:
    async def run() -> None:
        async with process_on(str(tmp_path / "t.db")) as process:
            writer = ThreadWriter(
                open_database(str(tmp_path / "t.db")), open_reader(str(tmp_path / "t.db")), "t.db", Recorder().lost
            )
            store = SqliteMemories(writer)

            async def save(number: int, claimed: Process) -> None:
                claim = await claimed.claimed()
                texts = [f"fact {number} {turn} shared" for turn in range(5)]
                for turn, text in enumerate(texts):
                    event = MemorySaved(f"mem_{number}_{turn}", text, "tool")
                    assert (await claimed.advance(claim, 2 + turn, [event])).accepted

            async def read() -> None:
                for _ in range(20):
                    await matching(store, AGENT, "shared", 5)
                    pending = await pending_of(store, AGENT, "test", None, 7)
                    await store.keep(AGENT, "test", [(item, unit(1, item.number)) for item in pending])

            async with asyncio.timeout(60):
                await asyncio.gather(*(save(n, process) for n in range(12)), read(), read())
                while pending := await pending_of(store, AGENT, "test", None, 50):
                    await store.keep(AGENT, "test", [(item, unit(1, item.number)) for item in pending])
            assert len(await matching(store, AGENT, "shared", 100)) == 60
            assert len(await nearest(store, AGENT, "test", unit(1, 1), 100)) == 60
            await writer.close()

    asyncio.run(run())


def test_the_statements_are_all_used_and_all_there() -> None:
    source = "".join(
        Path(storing.__file__).with_name(name).read_text() for name in ("memory.py", "remembering.py", "journal.py")
    )
    ours = Path(storing.__file__).with_name("memory.sql").read_text()
    names = [line.removeprefix("-- name: ") for line in ours.splitlines() if line.startswith("-- name: ")]
    assert all(name in SQL for name in names)
    assert [name for name in names if f'"{name}"' not in source] == []
