"""Memories in SQLite files: forgotten ones are gone from the file, and damage is reported."""

import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import apsw
import pytest

from tests.stores.test_faults import process_on
from treadle.domain.events import MemorySaved
from treadle.ports.memory_index import VectorsUnavailable
from treadle.stores.memories import pack_vector
from treadle.stores.sqlite import memory as storing
from treadle.stores.sqlite.connection import SQL, open_database, open_reader
from treadle.stores.sqlite.memory import SqliteMemories
from treadle.stores.sqlite.writer import InlineWriter, ThreadWriter
from treadle.testing.conformance.memories import MemoryStoreUnderTest, make_memory, make_unit_vector
from treadle.testing.conformance.store import Recorder
from treadle.testing.conformance.store_harness import OWN


@asynccontextmanager
async def on_file(path: Path) -> AsyncGenerator[MemoryStoreUnderTest, None]:
    writer = ThreadWriter(open_database(str(path)), open_reader(str(path)), str(path), Recorder().on_lost)
    yield MemoryStoreUnderTest(SqliteMemories(writer))
    await writer.close()


def files_with(folder: Path, needle: bytes) -> list[str]:
    return [file.name for file in folder.iterdir() if needle in file.read_bytes().lower()]


async def test_forgetting_leaves_no_trace_in_the_file(tmp_path: Path) -> None:
    """Of text, of words, of vectors; in whatever order, and however the rows have moved about meanwhile."""
    chance = random.Random(4)
    words = [f"zq{number:04}xj" for number in range(120)]
    texts = {word: f"Something about {word}, {'and more ' * chance.randint(0, 60)}" for word in words}

    async def fill() -> list[bytes]:
        async with on_file(tmp_path / "t.db") as shelf:
            store = shelf.store
            await store.add([make_memory(n, texts[word]) for n, word in enumerate(words)])
            vectors = [make_unit_vector(*(chance.gauss(0, 1) for _ in range(64))) for _ in words]
            await shelf.embed(*vectors)
            for n in range(0, len(words), 3):
                await store.pin(f"mem_{n}", True)
            return [pack_vector(vector)[1] for vector in vectors]

    async def forget(numbers: list[int]) -> None:
        async with on_file(tmp_path / "t.db") as shelf:
            store = shelf.store
            assert await store.forget([f"mem_{n}" for n in numbers]) == len(numbers)
            assert await store.forget([f"mem_{n}" for n in numbers]) == 0

    kept = await fill()
    order = list(range(len(words)))
    chance.shuffle(order)
    for part in (order[:40], order[40:60], order[60:]):
        await forget(part)
        for n in part:
            assert files_with(tmp_path, words[n].encode()) == []
            assert files_with(tmp_path, kept[n].lower()) == []


async def test_a_platform_without_the_extension_is_reported(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    import sqlite_vec  # pyright: ignore[reportMissingTypeStubs] -- it has none

    monkeypatch.setattr(sqlite_vec, "loadable_path", lambda: str(tmp_path / "nowhere"))

    async with on_file(tmp_path / "t.db") as shelf:
        store = shelf.store
        await store.add([make_memory(1, "one")])
        await shelf.embed(make_unit_vector(1, 0))
        with pytest.raises(VectorsUnavailable, match="sqlite-vec could not be loaded"):
            await shelf.near(OWN, "test", make_unit_vector(1, 0), 5)
        assert await shelf.find_matching("one", 5) == ["mem_1"]


async def test_no_extension_can_be_loaded_after_opening(tmp_path: Path) -> None:
    """Only while ours is: SQL must not be able to load code."""

    connection = open_database(":memory:")
    shelf = MemoryStoreUnderTest(SqliteMemories(InlineWriter(connection)))
    await shelf.store.add([make_memory(1, "one")])
    await shelf.embed(make_unit_vector(1, 0))
    await shelf.near(OWN, "test", make_unit_vector(1, 0), 5)
    with pytest.raises(apsw.Error, match="not authorized"):
        connection.execute("SELECT load_extension('x')").fetchall()


async def test_a_memory_that_cannot_be_stored_is_skipped_and_the_run_continues(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with process_on(str(tmp_path / "t.db")) as process:
        process.connection.execute("DROP TABLE memory_words")
        claim = await process.claimed()
        assert (await process.advance(claim, 2, [MemorySaved("mem_1", "text", "tool")])).accepted
        assert (await process.types(claim.origin.run_id))[-1] == "memory_saved"
        assert process.connection.execute("SELECT count(*) FROM memories").fetchall() == [(0,)]
    assert "skipped a memory that could not be stored" in caplog.text


def test_all_named_statements_exist_and_are_used() -> None:
    source = "".join(
        Path(storing.__file__).with_name(name).read_text() for name in ("memory.py", "memory_rows.py", "journal.py")
    )
    ours = Path(storing.__file__).with_name("memory.sql").read_text()
    names = [line.removeprefix("-- name: ") for line in ours.splitlines() if line.startswith("-- name: ")]
    assert all(name in SQL for name in names)
    general = [name.removesuffix("_of_owner").removesuffix("_of_workspace") for name in names]
    used = [f'"{name}"' in source or f'"{each}"' in source for name, each in zip(names, general, strict=True)]
    assert [name for name, is_used in zip(names, used, strict=True) if not is_used] == []
