"""Checks for implementers of a store: what a run remembers is kept with its event, and never stops the run."""

import asyncio
from typing import Final

from treadle.domain.events import EventData, JournalWritten, MemoryRecalled, MemorySaved, Reminder
from treadle.domain.memories import Memory
from treadle.ports.memory_index import Term
from treadle.testing.conformance.memories import MemoryStoreUnderTest, unit
from treadle.testing.conformance.store_harness import AGENT, OWN, Desk, KeptCheck, KeptHarness, one_desk, two_desks


async def _reported(desk: Desk, *events: EventData) -> list[tuple[str, str, int, bool]]:
    """What is remembered after a run has reported these, the oldest first: id, text, uses, whether it is pinned."""
    claim = await desk.claimed()
    assert (await desk.advance(claim, 2, events)).accepted
    assert len(await desk.gapless(claim.origin.run_id)) == 2 + len(events)
    return [(kept.memory_id, kept.text, kept.uses, kept.pinned) for kept in await _all_of(desk)]


async def _all_of(desk: Desk) -> list[Memory]:
    """All that is remembered, the oldest first."""
    return list(await desk.memories.list())[::-1]


async def what_a_run_saves_is_kept_with_its_event(harness: KeptHarness) -> None:
    """With its run and its session, at the time of the event, and to be found by its words."""
    async with one_desk(harness) as desk:
        claim = await desk.claimed()
        saved, noted = MemorySaved("mem_1", "She plays the tuba.", "tool", True), JournalWritten("mem_2", "at 3")
        await desk.advance(claim, 2, [saved], [noted])
        whose = claim.origin.session_id, claim.origin.run_id
        fact = Memory("mem_1", AGENT, "long_term", saved.text, desk.clock.now(), "tool", None, 0, True, *whose)
        note = Memory("mem_2", AGENT, "journal", noted.text, desk.clock.now(), "tool", None, 0, False, *whose)
        assert await _all_of(desk) == [fact, note]
        hits = await desk.memories.read(lambda view: view.matching(OWN, [Term(("tuba",))], 5))
        assert [hit.memory for hit in hits] == [fact]
        assert (await desk.memories.read(lambda view: view.glance(OWN, None))).notes == (note,)


async def what_is_said_again_refreshes_what_was_there(harness: KeptHarness) -> None:
    """Whether it has the same text, or the run knows what it repeats. What repeats a memory that was forgotten is
    kept itself."""
    async with one_desk(harness) as desk:
        first, same = MemorySaved("mem_1", "A tuba.", "tool"), MemorySaved("mem_2", "  a TUBA", "run")
        assert await _reported(desk, first, same) == [("mem_1", "A tuba.", 1, False)]
        knows = MemorySaved("mem_3", "The tuba is her instrument.", "run", True, repeats="mem_1")
        assert await _reported(desk, knows) == [("mem_1", "A tuba.", 2, True)]
        assert (await _all_of(desk))[0].used_at == desk.clock.now()
        gone = MemorySaved("mem_4", "A harp.", "run", repeats="mem_gone")
        assert (await _reported(desk, gone))[1:] == [("mem_4", "A harp.", 0, False)]


async def the_same_event_twice_is_one_memory(harness: KeptHarness) -> None:
    """By its id, whatever its text. A note that is written again under another id is a new note."""
    async with one_desk(harness) as desk:
        saved, note = MemorySaved("mem_1", "text", "tool"), JournalWritten("mem_2", "note")
        other, again = MemorySaved("mem_1", "another text", "tool"), JournalWritten("mem_3", "note")
        assert await _reported(desk, saved, saved, note, note, other, again) == [
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


async def what_only_nearly_says_the_same_is_kept_beside_it(harness: KeptHarness) -> None:
    """Signs, symbols and the order of words matter."""
    async with one_desk(harness) as desk:
        texts = [text for pair in NEARLY for text in pair]
        events = [MemorySaved(f"mem_{number}", text, "tool") for number, text in enumerate(texts)]
        assert [text for _, text, _, _ in await _reported(desk, *events)] == texts


async def being_recalled_counts_once_for_each_event(harness: KeptHarness) -> None:
    """Whatever else was recalled with it, and whether that is still there."""
    async with one_desk(harness) as desk:
        twice = MemoryRecalled((Reminder("mem_1"), Reminder("mem_1"), Reminder("mem_gone")), "section")
        saved = MemorySaved("mem_1", "text", "tool")
        assert await _reported(desk, saved, twice, twice) == [("mem_1", "text", 2, False)]
        assert (await _all_of(desk))[0].used_at == desk.clock.now()


ODD = ('a "b" OR NEAR(', "\x00", "x" * 200_000, "\U0001f989" * 500, "\u202e evil", "; DROP TABLE", "' & !:*\\ @")


async def no_text_stops_a_run(harness: KeptHarness) -> None:
    """It is kept as it is; but what is nothing but white space is not kept."""
    async with one_desk(harness) as desk:
        for number, text in enumerate(("", " \n", *ODD)):
            events = MemorySaved(f"mem_{number}", text, "tool"), JournalWritten(f"mem_n{number}", text)
            kept = [row for row in await _reported(desk, *events) if row[0] in (f"mem_{number}", f"mem_n{number}")]
            assert [row[1] for row in kept] == ([text] * 2 if text.strip() else [])
        many = " ".join(f"word{number:06}" for number in range(100_000))
        assert ("mem_many", many, 0, False) in await _reported(desk, MemorySaved("mem_many", many, "tool"))
        hits = await desk.memories.read(lambda view: view.matching(OWN, [Term(("word000001",))], 5))
        assert [hit.memory.memory_id for hit in hits] == ["mem_many"]


async def whoever_makes_vectors_meanwhile_leaves_out_nothing(harness: KeptHarness) -> None:
    """However many save memories, and however many make vectors of them, in several processes at once."""
    async with two_desks(harness) as (one, two):

        async def save(desk: Desk, number: int) -> None:
            claim = await desk.claimed()
            for turn in range(5):
                event = MemorySaved(f"mem_{number}_{turn}", f"fact {number} {turn} shared", "tool")
                assert (await desk.advance(claim, 2 + turn, [event])).accepted

        async def embed(desk: Desk, at_once: int) -> bool:
            pending = await MemoryStoreUnderTest(desk.memories).pending(OWN, "test", None, at_once)
            await desk.memories.keep(OWN, "test", [(item, unit(1, item.number)) for item in pending])
            return bool(pending)

        async def make(desk: Desk) -> None:
            for _ in range(15):
                await embed(desk, 7)

        await asyncio.gather(*(save((one, two)[n % 2], n) for n in range(8)), make(one), make(two))
        while await embed(one, 50):
            pass
        assert len(await MemoryStoreUnderTest(two.memories).matching("shared", 100)) == 40
        assert len(await MemoryStoreUnderTest(two.memories).near(OWN, "test", unit(1, 1), 100)) == 40
        assert not (await MemoryStoreUnderTest(two.memories).glance(OWN, "test")).is_behind


CHECKS: Final[tuple[KeptCheck, ...]] = (
    what_a_run_saves_is_kept_with_its_event,
    what_is_said_again_refreshes_what_was_there,
    the_same_event_twice_is_one_memory,
    what_only_nearly_says_the_same_is_kept_beside_it,
    being_recalled_counts_once_for_each_event,
    no_text_stops_a_run,
    whoever_makes_vectors_meanwhile_leaves_out_nothing,
)
