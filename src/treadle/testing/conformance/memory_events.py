"""Checks for implementers of a store: memories are stored with the event of a run, and never stop the run."""

import asyncio
from typing import Final

from treadle.domain.events import EventData, JournalWritten, MemoryRecalled, MemorySaved, Reminder
from treadle.domain.memories import Memory
from treadle.ports.memory_index import Term
from treadle.testing.conformance.memories import MemoryStoreUnderTest, make_unit_vector
from treadle.testing.conformance.store_harness import (
    AGENT,
    OWN,
    FullStoreCheck,
    FullStoreHarness,
    FullStoreProcess,
    open_full_store,
    open_full_store_twice,
)


async def _report_events(desk: FullStoreProcess, *events: EventData) -> list[tuple[str, str, int, bool]]:
    """Return the memories after a run has reported these events, the oldest first: id, text, uses, pinned."""
    claim = await desk.claimed()
    assert (await desk.advance(claim, 2, events)).accepted
    assert len(await desk.gapless(claim.origin.run_id)) == 2 + len(events)
    return [(kept.memory_id, kept.text, kept.uses, kept.pinned) for kept in await _list_memories(desk)]


async def _list_memories(desk: FullStoreProcess) -> list[Memory]:
    """Return all memories, the oldest first."""
    return list(await desk.memories.list())[::-1]


async def a_saved_memory_is_stored_with_its_event(harness: FullStoreHarness) -> None:
    """With its run and session, at the time of the event, and searchable by its words."""
    async with open_full_store(harness) as desk:
        claim = await desk.claimed()
        saved, noted = MemorySaved("mem_1", "She plays the tuba.", "tool", True), JournalWritten("mem_2", "at 3")
        await desk.advance(claim, 2, [saved], [noted])
        whose = claim.origin.session_id, claim.origin.run_id
        fact = Memory("mem_1", AGENT, "long_term", saved.text, desk.clock.now(), "tool", None, 0, True, *whose)
        note = Memory("mem_2", AGENT, "journal", noted.text, desk.clock.now(), "tool", None, 0, False, *whose)
        assert await _list_memories(desk) == [fact, note]
        hits = await desk.memories.read(lambda view: view.find_matching(OWN, [Term(("tuba",))], 5))
        assert [hit.memory for hit in hits] == [fact]
        assert (await desk.memories.read(lambda view: view.read_overview(OWN, None))).notes == (note,)


async def a_repeated_fact_refreshes_the_existing_memory(harness: FullStoreHarness) -> None:
    """Whether the text is the same or the run names the memory that it repeats. A repetition of a forgotten memory
    is stored itself."""
    async with open_full_store(harness) as desk:
        first, same = MemorySaved("mem_1", "A tuba.", "tool"), MemorySaved("mem_2", "  a TUBA", "run")
        assert await _report_events(desk, first, same) == [("mem_1", "A tuba.", 1, False)]
        knows = MemorySaved("mem_3", "The tuba is her instrument.", "run", True, repeats="mem_1")
        assert await _report_events(desk, knows) == [("mem_1", "A tuba.", 2, True)]
        assert (await _list_memories(desk))[0].used_at == desk.clock.now()
        gone = MemorySaved("mem_4", "A harp.", "run", repeats="mem_gone")
        assert (await _report_events(desk, gone))[1:] == [("mem_4", "A harp.", 0, False)]


async def a_repeated_event_creates_one_memory(harness: FullStoreHarness) -> None:
    """The id decides, whatever the text. A note written again under another id is a new note."""
    async with open_full_store(harness) as desk:
        saved, note = MemorySaved("mem_1", "text", "tool"), JournalWritten("mem_2", "note")
        other, again = MemorySaved("mem_1", "another text", "tool"), JournalWritten("mem_3", "note")
        assert await _report_events(desk, saved, saved, note, note, other, again) == [
            ("mem_1", "text", 0, False), ("mem_2", "note", 0, False), ("mem_3", "note", 0, False),
        ]  # fmt: skip


NEARLY = (
    ("The user prefers tea over coffee.", "The user prefers coffee over tea."),
    ("It is -5 outside", "It is 5 outside"),
    ("It is written in C++", "It is written in C#"),
    ("10² items", "102 items"),
    ("x < y holds", "x > y holds"),
    ("Backups are enabled for all of the users", "Backups are disabled for all of the users"),
    ("Is it up?", "Is it up"),
)


async def a_similar_but_different_fact_is_stored_separately(harness: FullStoreHarness) -> None:
    """Signs, symbols and the order of words matter."""
    async with open_full_store(harness) as desk:
        texts = [text for pair in NEARLY for text in pair]
        events = [MemorySaved(f"mem_{number}", text, "tool") for number, text in enumerate(texts)]
        assert [text for _, text, _, _ in await _report_events(desk, *events)] == texts


async def a_recall_counts_once_per_event(harness: FullStoreHarness) -> None:
    """Whatever else was recalled with it, and whether that still exists."""
    async with open_full_store(harness) as desk:
        twice = MemoryRecalled((Reminder("mem_1"), Reminder("mem_1"), Reminder("mem_gone")), "section")
        saved = MemorySaved("mem_1", "text", "tool")
        assert await _report_events(desk, saved, twice, twice) == [("mem_1", "text", 2, False)]
        assert (await _list_memories(desk))[0].used_at == desk.clock.now()


ODD = ('a "b" OR NEAR(', "\x00", "x" * 200_000, "\U0001f989" * 500, "\u202e evil", "; DROP TABLE", "' & !:*\\ @")


async def no_text_stops_a_run(harness: FullStoreHarness) -> None:
    """Every text is stored as it is, except that white space alone is not stored."""
    async with open_full_store(harness) as desk:
        for number, text in enumerate(("", " \n", *ODD)):
            events = MemorySaved(f"mem_{number}", text, "tool"), JournalWritten(f"mem_n{number}", text)
            kept = [
                row for row in await _report_events(desk, *events) if row[0] in (f"mem_{number}", f"mem_n{number}")
            ]
            assert [row[1] for row in kept] == ([text] * 2 if text.strip() else [])
        many = " ".join(f"word{number:06}" for number in range(100_000))
        assert ("mem_many", many, 0, False) in await _report_events(desk, MemorySaved("mem_many", many, "tool"))
        hits = await desk.memories.read(lambda view: view.find_matching(OWN, [Term(("word000001",))], 5))
        assert [hit.memory.memory_id for hit in hits] == ["mem_many"]


async def concurrent_embedding_misses_no_memory(harness: FullStoreHarness) -> None:
    """However many workers save memories and create vectors, in several processes at once."""
    async with open_full_store_twice(harness) as (one, two):

        async def save(desk: FullStoreProcess, number: int) -> None:
            claim = await desk.claimed()
            for turn in range(5):
                event = MemorySaved(f"mem_{number}_{turn}", f"fact {number} {turn} shared", "tool")
                assert (await desk.advance(claim, 2 + turn, [event])).accepted

        async def embed(desk: FullStoreProcess, at_once: int) -> bool:
            pending = await MemoryStoreUnderTest(desk.memories).list_unembedded(OWN, "test", None, at_once)
            await desk.memories.keep(OWN, "test", [(item, make_unit_vector(1, item.number)) for item in pending])
            return bool(pending)

        async def make(desk: FullStoreProcess) -> None:
            for _ in range(15):
                await embed(desk, 7)

        await asyncio.gather(*(save((one, two)[n % 2], n) for n in range(8)), make(one), make(two))
        while await embed(one, 50):
            pass
        assert len(await MemoryStoreUnderTest(two.memories).find_matching("shared", 100)) == 40
        assert len(await MemoryStoreUnderTest(two.memories).near(OWN, "test", make_unit_vector(1, 1), 100)) == 40
        assert not (await MemoryStoreUnderTest(two.memories).read_overview(OWN, "test")).is_behind


CHECKS: Final[tuple[FullStoreCheck, ...]] = (
    a_saved_memory_is_stored_with_its_event,
    a_repeated_fact_refreshes_the_existing_memory,
    a_repeated_event_creates_one_memory,
    a_similar_but_different_fact_is_stored_separately,
    a_recall_counts_once_per_event,
    no_text_stops_a_run,
    concurrent_embedding_misses_no_memory,
)
