"""What a run remembers is kept with its event, once, and never stops the run."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.stores.test_faults import process_on
from treadle.domain.events import EventData, JournalWritten, MemoryRecalled, MemorySaved, Reminder
from treadle.domain.identity import AgentId
from treadle.stores.sqlite.connection import open_reader
from treadle.stores.sqlite.memory import SqliteMemories
from treadle.stores.sqlite.writer import InlineWriter

AGENT = AgentId("agt_conformance")


async def saved(path: Path, *events: EventData) -> list[Any]:
    """The rows after a run has reported these."""
    async with process_on(str(path)) as process:
        claim = await process.claimed()
        await process.advance(claim, 2, events)
        connection = process.connection
        return connection.execute("SELECT memory_id, kind, text, uses, pinned FROM memories ORDER BY id").fetchall()


def test_what_a_run_saves_is_kept_with_its_event(tmp_path: Path) -> None:
    async def run() -> None:
        async with process_on(str(tmp_path / "t.db")) as process:
            claim = await process.claimed()
            events = [
                MemorySaved("mem_1", "She plays the tuba.", "tool", True),
                JournalWritten("mem_2", "go on at 3"),
            ]
            await process.advance(claim, 2, events)
            store = SqliteMemories(InlineWriter(open_reader(str(tmp_path / "t.db"))))
            newest = await store.list(AGENT)
            assert [(item.memory_id, item.kind, item.source) for item in newest] == [
                ("mem_2", "journal", "tool"),
                ("mem_1", "long_term", "tool"),
            ]
            kept = newest[1]
            assert (kept.run_id, kept.session_id, kept.pinned) == (
                claim.origin.run_id,
                claim.origin.session_id,
                True,
            )
            assert kept.created_at == process.clock.now()
            assert [item.text for item in await store.matching(AGENT, '"tuba"', 5)] == ["She plays the tuba."]
            assert (await store.glance(AGENT, None)).notes == (newest[0],)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("again", "pinned"),
    [
        (MemorySaved("mem_2", "  she plays  THE tuba", "run"), 0),
        (MemorySaved("mem_2", "The tuba is her instrument.", "run", True, repeats="mem_1"), 1),
    ],
)
def test_what_is_said_again_refreshes_what_was_there(tmp_path: Path, again: MemorySaved, pinned: int) -> None:
    first = MemorySaved("mem_1", "She plays the tuba.", "tool")
    rows = asyncio.run(saved(tmp_path / "t.db", first, again))
    assert rows == [("mem_1", "long_term", "She plays the tuba.", 1, pinned)]


def test_what_repeats_a_memory_that_was_forgotten_is_kept_itself(tmp_path: Path) -> None:
    rows = asyncio.run(saved(tmp_path / "t.db", MemorySaved("mem_2", "text", "run", repeats="mem_gone")))
    assert [row[0] for row in rows] == ["mem_2"]


def test_the_same_event_twice_is_one_memory(tmp_path: Path) -> None:
    event, note = MemorySaved("mem_1", "text", "tool"), JournalWritten("mem_2", "note")
    other = MemorySaved("mem_1", "another text under the same id", "tool")
    rows = asyncio.run(saved(tmp_path / "t.db", event, event, note, note, other))
    assert rows == [("mem_1", "long_term", "text", 0, 0), ("mem_2", "journal", "note", 0, 0)]


def test_being_recalled_counts_once_for_each_event(tmp_path: Path) -> None:
    twice = MemoryRecalled((Reminder("mem_1", "a"), Reminder("mem_1", "a"), Reminder("mem_gone", "b")), "section")
    rows = asyncio.run(saved(tmp_path / "t.db", MemorySaved("mem_1", "text", "tool"), twice, twice))
    assert rows == [("mem_1", "long_term", "text", 2, 0)]


ODD = ["", " \n", "\0", 'a "b" OR NEAR(', "x" * 200_000, "\U0001f989" * 500, "\u202e evil", "; DROP TABLE"]


@pytest.mark.parametrize("text", ODD, ids=range(len(ODD)))
def test_no_text_stops_a_run(tmp_path: Path, text: str) -> None:
    rows = asyncio.run(saved(tmp_path / "t.db", MemorySaved("mem_1", text, "tool"), JournalWritten("mem_2", text)))
    assert len(rows) == (2 if text.strip() else 0)


def test_a_memory_that_cannot_be_kept_is_left_out_and_the_run_goes_on(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        async with process_on(str(tmp_path / "t.db")) as process:
            process.connection.execute("DROP TABLE memory_words")
            claim = await process.claimed()
            assert (await process.advance(claim, 2, [MemorySaved("mem_1", "text", "tool")])).accepted
            assert (await process.types(claim.origin.run_id))[-1] == "memory_saved"
            assert process.connection.execute("SELECT count(*) FROM memories").fetchall() == [(0,)]

    asyncio.run(run())
    assert "a memory could not be kept" in caplog.text
