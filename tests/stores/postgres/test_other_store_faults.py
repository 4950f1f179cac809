"""The other stores where PostgreSQL differs from SQLite: sequence numbers that are assigned before the commit,
servers without pgvector, lost answers, and reads from a thread."""

import asyncio
import logging
import os
import shutil
import tempfile
import threading
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.patience import HANG_SECONDS
from tests.stores.postgres.harness import KeptOnServer, opened
from tests.stores.postgres.servers import NAMED, skip_without_vectors, tell
from tests.stores.postgres.test_faults import once
from tests.stores.postgres.wire import Wire, wire
from treadle.domain.errors import SessionDeleted, UnknownSession
from treadle.domain.events import MemorySaved, RunForked
from treadle.domain.ids import SessionId, TokenId
from treadle.ports.access import TokenRecord
from treadle.ports.deletion import DatabaseFacts
from treadle.ports.memory_index import MemoryView
from treadle.stores.postgres.database import open_database
from treadle.stores.postgres.database_facts import count_guard_events, name_vector_engine, read_facts
from treadle.stores.postgres.driver import open_connection
from treadle.stores.postgres.memory_rows import encode_memory
from treadle.stores.postgres.results import PostgresResults
from treadle.stores.postgres.schema import current_version, migrate
from treadle.testing.conformance import memories
from treadle.testing.conformance.memories import MemoryStoreUnderTest, make_memory, make_unit_vector
from treadle.testing.conformance.store import Recorder
from treadle.testing.conformance.store_harness import AGENT, OWN, FullStoreCheck, FullStoreProcess, open_full_store
from treadle.testing.time import FakeClock


@pytest.fixture
def folder() -> Generator[Path, None, None]:
    """Yield a folder whose path is short enough for a socket."""
    made = Path(tempfile.mkdtemp(prefix="wire"))
    yield made
    shutil.rmtree(made)


async def find_vector_engine(url: str) -> str:
    database = await open_database(url)
    try:
        return await name_vector_engine(database)
    finally:
        await database.close()


# ── Vectors ────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    "check",
    [
        memories.the_nearest_come_first_and_one_session_can_be_left_out,
        memories.the_approximate_search_agrees_with_an_exact_one,
        memories.vectors_of_other_dimensions_are_recreated,
    ],
)
async def test_vectors_are_compared_without_pgvector(check: FullStoreCheck, url: str) -> None:
    await tell(url, "DROP EXTENSION IF EXISTS vector")
    assert await find_vector_engine(url) == "SQL"
    await check(KeptOnServer(url))


async def test_pgvector_is_used_if_the_server_has_it(url: str) -> None:
    await skip_without_vectors(url)
    assert await find_vector_engine(url) == "pgvector"


async def test_vectors_are_compared_in_sql_if_pgvector_is_refused(bare: str) -> None:
    await tell(bare, "DROP EXTENSION IF EXISTS vector", "DROP SCHEMA public")
    await migrate(bare)
    assert await find_vector_engine(bare) == "SQL"


async def test_a_memory_that_is_committed_late_gets_its_vector(url: str) -> None:
    """Its number was taken before that of another, of which the vector is made already."""

    async with open_full_store(KeptOnServer(url)) as desk:
        shelf, slow = (
            MemoryStoreUnderTest(desk.memories),
            await open_connection(url, 10, {"search_path": "treadle"}),
        )
        await slow.execute("BEGIN")
        late = msgspec.json.encode([encode_memory(make_memory(1, "late"))]).decode()
        assert await slow.fetchval("SELECT keep_memories($1)", late) == 1
        await desk.memories.add([make_memory(2, "early")])
        await shelf.embed(make_unit_vector(1, 0))
        assert list(await shelf.list_unembedded(OWN, "test", 2, 5)) == []
        await slow.execute("COMMIT")
        await slow.close()
        assert (await shelf.read_overview(OWN, "test")).is_behind
        [pending] = await shelf.list_unembedded(OWN, "test", 2, 5)
        assert pending.memory.text == "late"
        await shelf.embed(make_unit_vector(0, 1))
        assert await shelf.near(OWN, "test", make_unit_vector(0, 1), 5) == ["late", "early"]
        assert not (await shelf.read_overview(OWN, "test")).is_behind


# ── With the events of a run ───────────────────────────────────────────────────────────────────────


async def test_a_memory_that_cannot_be_stored_is_skipped_and_the_run_continues(url: str) -> None:
    await tell(url, "ALTER TABLE treadle.memories ADD CHECK (text <> 'odd')")
    async with open_full_store(KeptOnServer(url)) as desk:
        claim = await desk.claimed()
        saved = [MemorySaved(f"mem_{text}", text, "tool") for text in ("one", "odd", "two")]
        assert (await desk.advance(claim, 2, saved)).accepted
        assert len(await desk.gapless(claim.origin.run_id)) == 5
        assert {kept.text for kept in await desk.memories.list()} == {"one", "two"}


async def test_a_fork_has_the_results_of_its_source_run(url: str) -> None:
    clock, told = FakeClock(), Recorder()
    async with open_full_store(KeptOnServer(url)) as desk, opened(url, told, clock) as (_, database, _):
        results = PostgresResults(database)
        old, later = await desk.claimed("s"), await desk.submit("s")
        await results.keep(old.origin, "c", "one")
        await desk.end(old, 2)
        await results.keep((await desk.claim(later)).origin, "c", "of a run that came later")
        fork = await desk.claimed("fork")
        await desk.advance(fork, 2, [RunForked(old.origin.run_id, 1)])
        assert await results.read(SessionId("fork"), "c") == "one"


# ── Looks ──────────────────────────────────────────────────────────────────────────────────────────


async def test_a_read_sees_one_snapshot(url: str) -> None:
    async with open_full_store(KeptOnServer(url)) as desk:
        seen, goes_on = asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def look(view: MemoryView) -> tuple[bool, bool]:
            before = view.read_overview(OWN, None).is_empty
            loop.call_soon_threadsafe(seen.set)
            assert goes_on.wait(10)
            return before, view.read_overview(OWN, None).is_empty

        looking = asyncio.ensure_future(desk.memories.read(look))
        await seen.wait()
        await desk.memories.add([make_memory(1, "one")])
        goes_on.set()
        assert await looking == (True, True)
        assert not (await MemoryStoreUnderTest(desk.memories).read_overview(OWN, None)).is_empty


async def test_an_abandoned_read_releases_its_connection(url: str) -> None:
    async with open_full_store(KeptOnServer(url)) as desk:
        begun, goes_on, asked = threading.Event(), threading.Event(), list[str]()

        def look(view: MemoryView) -> None:
            begun.set()
            assert goes_on.wait(HANG_SECONDS)
            view.read_overview(OWN, None)
            asked.append("it was answered")

        for _ in range(6):  # more than there are connections
            goes_on.clear()
            begun.clear()
            looking = asyncio.ensure_future(desk.memories.read(look))
            await asyncio.to_thread(begun.wait, HANG_SECONDS)
            looking.cancel()
            asyncio.get_running_loop().call_soon(goes_on.set)
            with pytest.raises(asyncio.CancelledError):
                await looking
        assert asked == []
        assert (await MemoryStoreUnderTest(desk.memories).read_overview(OWN, None)).is_empty


# ── Answers that are lost ──────────────────────────────────────────────────────────────────────────


@asynccontextmanager
async def open_store_over_wire(url: str, folder: Path) -> AsyncGenerator[tuple[FullStoreProcess, Wire], None]:
    async with wire(url, folder) as (address, between), open_full_store(KeptOnServer(address)) as desk:
        yield desk, between


@pytest.mark.skipif(NAMED in os.environ, reason="this stands between the store and its server")
async def test_a_batch_whose_answer_was_lost_is_recognised(
    url: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)

    async with open_store_over_wire(url, folder) as (desk, between):
        for session in ("ses_1", "ses_2"):
            await desk.end(await desk.claimed(session), 2)
        between.on_reply = once(b"SELECT 1")
        [buried] = await desk.kept.deletions.delete(SessionId("ses_1"), "ada")
        assert buried.session_id == "ses_1"
        with pytest.raises(SessionDeleted):
            await desk.kept.deletions.delete(SessionId("ses_1"), "ada")
        between.on_reply = once(b"SELECT 1")
        [buried] = await desk.kept.deletions.prune([SessionId("ses_2")], 5e9, "ada")
        assert buried.session_id == "ses_2"
        record = TokenRecord(TokenId("tok_1"), "one", (), None, 1.0)
        between.on_reply = once(b"INSERT 0 1")
        await desk.kept.tokens.add(record, b"digest")
        between.on_reply = once(b"UPDATE 1")
        assert await desk.kept.tokens.revoke(record.token_id, 5.0)


@pytest.mark.skipif(NAMED in os.environ, reason="this stands between the store and its server")
async def test_a_read_that_loses_its_connection_is_repeated(
    url: str, folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.CRITICAL)

    async with open_store_over_wire(url, folder) as (desk, between):
        await desk.memories.add([make_memory(1, "one")])
        shelf, looks = MemoryStoreUnderTest(desk.memories), list[bool]()

        def look(view: MemoryView) -> bool:
            looks.append(view.read_overview(OWN, None).is_empty)
            if len(looks) == 1:
                between.on_reply = once(b"SELECT")
            return view.read_overview(OWN, None).is_empty

        assert not await shelf.store.read(look)
        assert looks == [False, False]


async def test_a_session_tree_that_grows_during_deletion_is_deleted_completely(url: str) -> None:
    """A run of it begins another session while the deletion waits for it to end."""

    async with open_full_store(KeptOnServer(url)) as desk, open_full_store(KeptOnServer(url)) as other:
        claim = await desk.claimed("ses_top")
        holding: Any = await open_connection(url, 10, {"search_path": "treadle"})
        await holding.execute("SELECT pg_advisory_lock(hashtextextended('ses_top', 0))")
        deleting = asyncio.ensure_future(other.kept.deletions.delete(SessionId("ses_top"), "ada"))
        waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        while not await holding.fetchval(waiting):  # noqa: ASYNC110 -- the server sends no event
            await asyncio.sleep(0.01)
        child = desk.child(claim, "ses_child")
        await desk.advance(claim, 2, [], [], begin=(child,))
        ended = "UPDATE runs SET outcome = 'completed', status = 'completed', worker = NULL"
        await holding.execute(ended)
        await holding.execute("SELECT pg_advisory_unlock_all()")
        await holding.close()
        assert [buried.session_id for buried in await deleting] == ["ses_top", "ses_child"]
        with pytest.raises(UnknownSession):
            await other.kept.deletions.delete(SessionId("ses_child"), "ada")


# ── Facts ──────────────────────────────────────────────────────────────────────────────────────────


async def test_the_rows_of_a_database_are_counted(url: str) -> None:
    clock, told = FakeClock(), Recorder()
    async with open_full_store(KeptOnServer(url)) as desk, opened(url, told, clock) as (journal, database, _):
        await journal.agent("ada", AGENT)
        await desk.end(await desk.claimed(), 2)
        await desk.submit()
        assert await read_facts(database) == DatabaseFacts(current_version(), 1, 2, 1, 5)
        await tell(url, "UPDATE treadle.events SET type = 'loop_warning' WHERE sequence = 1")
        assert await count_guard_events(database, 100) == [("loop_warning", 2)]
        assert await count_guard_events(database, 2) == [("loop_warning", 1)]
