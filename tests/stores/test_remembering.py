"""What a run remembers is kept with its event, once, and never stops the run."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.stores.test_faults import process_on
from treadle.domain.events import EventData, JournalWritten, MemoryRecalled, MemorySaved, Reminder
from treadle.domain.identity import AgentId
from treadle.ports.memory_index import Term
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
            hits = await store.read(lambda view: view.matching(AGENT, [Term(("tuba",))], 5))
            assert [hit.memory.text for hit in hits] == ["She plays the tuba."]
            assert (await store.read(lambda view: view.glance(AGENT, None))).notes == (newest[0],)

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


def test_a_note_that_is_written_again_is_a_new_note(tmp_path: Path) -> None:
    again = [JournalWritten(f"mem_{n}", text) for n, text in enumerate(("blocked", "other", "blocked"))]
    rows = asyncio.run(saved(tmp_path / "t.db", *again))
    assert [(row[0], row[2]) for row in rows] == [("mem_0", "blocked"), ("mem_1", "other"), ("mem_2", "blocked")]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("The user prefers tea over coffee.", "The user prefers coffee over tea."),
        ("It is -5 outside", "It is 5 outside"),
        ("It is written in C++", "It is written in C#"),
        ("10² items", "102 items"),
        ("x < y holds", "x > y holds"),
        ("Backups are enabled for all of the users", "Backups are disabled for all of the users"),
        ("Is it up?", "Is it up"),
    ],
)
def test_what_only_nearly_says_the_same_is_kept_beside_it(tmp_path: Path, one: str, other: str) -> None:
    events = [MemorySaved("mem_1", one, "tool"), MemorySaved("mem_2", other, "tool")]
    assert [row[2] for row in asyncio.run(saved(tmp_path / "t.db", *events))] == [one, other]


def test_being_recalled_counts_once_for_each_event(tmp_path: Path) -> None:
    twice = MemoryRecalled((Reminder("mem_1"), Reminder("mem_1"), Reminder("mem_gone")), "section")
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
