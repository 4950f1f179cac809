"""Checks for implementers of a store: data of one user is never found for another."""

import random
from collections.abc import Sequence
from typing import Final

from treadle.domain.agents import AgentSpec
from treadle.domain.envelope import Draft
from treadle.domain.errors import SessionTaken
from treadle.domain.events import JournalWritten, MemorySaved, RunQueued, UserMessage
from treadle.domain.ids import RunId, SessionId
from treadle.domain.memories import Memory, MemoryScope
from treadle.domain.messages import user
from treadle.domain.users import LOCAL_USER, UserId, journaled_owner
from treadle.ports.journal import Claim, RunDraft, RunFilter
from treadle.ports.memory import Assigned, Assignment
from treadle.ports.memory_index import Term
from treadle.testing.conformance.memories import MemoryStoreUnderTest, make_unit_vector
from treadle.testing.conformance.store import OPENING, check_refused, make_step
from treadle.testing.conformance.store_harness import (
    AGENT,
    FullStoreCheck,
    FullStoreHarness,
    FullStoreProcess,
    open_full_store,
    open_full_store_twice,
)

EVERYONE = MemoryScope(AGENT, None)
USERS = (LOCAL_USER, "alice", "bob", "tok_1")


def opening_events(desk: FullStoreProcess, owner: UserId) -> tuple[Draft, ...]:
    """Return the first events of a run of this user."""
    queued = RunQueued(AgentSpec("conformance", "none"), owner=journaled_owner(owner))
    return desk.draft(queued), desk.draft(UserMessage(user("hello")))


async def _submit(
    desk: FullStoreProcess, owner: UserId, session: str | None = None, key: str | None = None
) -> RunId:
    """Submit a run of this user."""
    return await desk.store.submit(desk.origin(session), opening_events(desk, owner), key)


def scope_of(owner: UserId) -> MemoryScope:
    """Return the memory scope of this user."""
    return MemoryScope(AGENT, owner)


def make_fact(number: int, text: str, owner: UserId) -> Memory:
    """Return a fact that was added for a user."""
    return Memory(
        memory_id=f"mem_{number}",
        agent_id=AGENT,
        kind="long_term",
        text=text,
        created_at=float(number),
        source="person",
        owner=owner,
    )


# ── Runs and sessions ──────────────────────────────────────────────────────────────────────────────


async def a_run_has_the_owner_that_its_first_event_names(harness: FullStoreHarness) -> None:
    """Lists can be filtered by owner. The id of a run of another owner is not a valid cursor in them."""
    async with open_full_store(harness) as desk:
        runs = {owner: [await _submit(desk, owner) for _ in range(2)] for owner in USERS}
        for owner, ids in runs.items():
            assert [(await desk.store.record(run_id)).owner for run_id in ids] == [owner] * 2
            found = await desk.store.find(RunFilter(owners=(owner,)))
            assert [record.origin.run_id for record in found] == ids[::-1]
            page = await desk.store.find(RunFilter(owners=(owner,), before=ids[1]))
            assert [record.origin.run_id for record in page] == ids[:1]
        foreign = RunFilter(owners=("alice",), before=runs["bob"][1])
        missing = RunFilter(owners=("alice",), before=RunId("run_none"))
        assert await desk.store.find(foreign) == await desk.store.find(missing) == []
        assert len(await desk.store.find()) == 2 * len(USERS)


async def a_session_has_one_owner(harness: FullStoreHarness) -> None:
    """The first user owns it, even if two processes start it concurrently."""
    async with open_full_store_twice(harness) as (one, two):
        await _submit(one, "alice", "ses_a", "key")
        await check_refused(_submit(two, "bob", "ses_a"), SessionTaken)
        await check_refused(_submit(two, LOCAL_USER, "ses_a"), SessionTaken)
        assert await _submit(two, "alice", "ses_a")
        await _submit(one, LOCAL_USER, "ses_l")
        await check_refused(_submit(two, "alice", "ses_l"), SessionTaken)
        assert len(await one.store.find(RunFilter(session_id=SessionId("ses_a")))) == 2


async def a_child_run_cannot_use_a_session_of_another_owner(harness: FullStoreHarness) -> None:
    """Nothing of the advance is written then."""
    async with open_full_store(harness) as desk:
        await _submit(desk, "alice", "ses_a")
        claim = await desk.claim(await _submit(desk, "bob", "ses_b"))
        child = RunDraft(desk.origin("ses_a", claim.origin.run_id), opening_events(desk, "bob"))
        await check_refused(desk.advance(claim, 2, [make_step(1)], [make_step(2)], begin=[child]), SessionTaken)
        assert await desk.types(claim.origin.run_id) == OPENING
        own = RunDraft(desk.origin(None, claim.origin.run_id), opening_events(desk, "bob"))
        assert (await desk.advance(claim, 2, [], [make_step(1)], begin=[own])).accepted
        assert (await desk.store.record(own.origin.run_id)).owner == "bob"


async def the_feed_can_be_read_for_one_owner(harness: FullStoreHarness) -> None:
    """In the order of commits, without events of other owners."""
    async with open_full_store(harness) as desk:
        ids = {owner: await _submit(desk, owner) for owner in USERS}
        for owner, run_id in ids.items():
            placed = await desk.store.after(0, owner=owner)
            assert [(each.event.run_id, each.event.type) for each in placed] == [
                (run_id, type_) for type_ in OPENING
            ]
            assert await desk.store.after(placed[-1].position, owner=owner) == []
        assert len(await desk.store.after(0)) == 2 * len(USERS)


# ── Memories ───────────────────────────────────────────────────────────────────────────────────────


async def a_saved_memory_belongs_to_the_owner_of_the_run(harness: FullStoreHarness) -> None:
    """The same fact of two owners is two memories, and neither refreshes or pins the other."""
    async with open_full_store(harness) as desk:
        claims = {owner: await desk.claim(await _submit(desk, owner)) for owner in ("alice", "bob")}
        await _append_facts(desk, claims["alice"], 2, MemorySaved("mem_a", "Likes tea.", "tool"))
        await _append_facts(desk, claims["bob"], 2, MemorySaved("mem_b", "likes TEA", "tool"))
        again = MemorySaved("mem_c", "Likes tea.", "tool", pinned=True, repeats="mem_a")
        await _append_facts(desk, claims["bob"], 3, again)
        await _append_facts(desk, claims["bob"], 4, JournalWritten("mem_n", "tea is next"))
        by_id = {memory.memory_id: memory for memory in await desk.memories.list()}
        assert {key: memory.owner for key, memory in by_id.items()} == {
            "mem_a": "alice",
            "mem_b": "bob",
            "mem_n": "bob",
        }
        assert (by_id["mem_a"].uses, by_id["mem_a"].pinned) == (0, False)
        assert (by_id["mem_b"].uses, by_id["mem_b"].pinned) == (1, True)
        notes = [await _notes(desk, scope_of(owner)) for owner in ("alice", "bob", LOCAL_USER)]
        assert notes == [[], ["mem_n"], []]


async def _append_facts(
    desk: FullStoreProcess, claim: Claim, seen: int, *events: MemorySaved | JournalWritten
) -> None:
    assert (await desk.advance(claim, seen, list(events))).accepted


async def _notes(desk: FullStoreProcess, scope: MemoryScope) -> list[str]:
    return [note.memory_id for note in (await MemoryStoreUnderTest(desk.memories).read_overview(scope, None)).notes]


async def nothing_crosses_from_one_owner_to_another(harness: FullStoreHarness) -> None:
    """Whatever is added, forgotten and reassigned, in any order: words, vectors, notes, duplicates and lists of
    one owner contain that owner's data and nothing else; those of all owners contain everything."""
    chance = random.Random(19)
    async with open_full_store(harness) as desk:
        shelf, kept = MemoryStoreUnderTest(desk.memories), dict[str, Memory]()
        for number in range(60):
            match chance.choice(("add", "add", "add", "note", "forget", "assign", "embed")):
                case "add":
                    text = f"shared word {chance.randrange(12)}"
                    made = make_fact(number, text, chance.choice(USERS))
                    is_new = all((each.text, each.owner) != (text, made.owner) for each in kept.values())
                    assert await desk.memories.add([made]) == is_new
                    if is_new:
                        kept[made.memory_id] = made
                case "note":
                    note = Memory(
                        f"mem_n{number}", AGENT, "journal", f"shared note {number}", 1000.0 + number,
                        owner=chance.choice(USERS),
                    )  # fmt: skip
                    assert await desk.memories.add([note]) == 1
                    kept[note.memory_id] = note
                case "forget" if kept:
                    gone = chance.choice(sorted(kept))
                    assert await desk.memories.forget([gone]) == 1
                    del kept[gone]
                case "assign" if kept:
                    await _assign_one(desk, kept, chance.choice(sorted(kept)), chance.choice(USERS))
                case _:
                    await _embed(desk, (*map(scope_of, USERS), EVERYONE)[chance.randrange(len(USERS) + 1)])
            await _check(desk, shelf, kept)


async def _assign_one(desk: FullStoreProcess, kept: dict[str, Memory], memory_id: str, owner: UserId) -> None:
    moved = kept[memory_id]
    twin = [
        other for other in kept.values()
        if (other.text, other.owner, other.kind) == (moved.text, owner, "long_term") and other is not moved
    ]  # fmt: skip
    came = await desk.memories.assign(Assignment(owner, (memory_id,)))
    if moved.owner == owner:
        assert came == Assigned()
    elif twin and moved.kind == "long_term":
        assert came == Assigned(0, 1)
        del kept[memory_id]
    else:
        assert came == Assigned(1, 0)
        found = await desk.memories.find(memory_id)
        assert found is not None
        assert found.owner == owner
        kept[memory_id] = found


async def _embed(desk: FullStoreProcess, scope: MemoryScope) -> None:
    pending = await MemoryStoreUnderTest(desk.memories).list_unembedded(scope, "test", None, 100)
    assert all(scope.owner in (None, item.memory.owner) for item in pending)
    await desk.memories.keep(scope, "test", [(item, make_unit_vector(1, item.number)) for item in pending])


async def _check(desk: FullStoreProcess, shelf: MemoryStoreUnderTest, kept: dict[str, Memory]) -> None:
    for scope in (*map(scope_of, USERS), EVERYONE):
        own = {key for key, memory in kept.items() if scope.owner in (None, memory.owner)}
        assert set(await _matching(desk, scope, "shared")) == own
        listed = await desk.memories.list(AGENT, limit=1000, owner=scope.owner)
        assert {memory.memory_id for memory in listed} == own
        near = await shelf.find_nearest(scope, "test", make_unit_vector(1, 3), 1000)
        assert {hit.memory.memory_id for hit in near} <= own
        overview = await shelf.read_overview(scope, "test")
        assert overview.is_empty == (not own)
        assert {note.memory_id for note in overview.notes} <= own
        if scope.owner is None:
            continue
        mine = {
            memory.text for memory in kept.values() if (memory.owner, memory.kind) == (scope.owner, "long_term")
        }
        for number in range(12):
            text, owner = f"shared word {number}", scope.owner
            found = await desk.memories.read(
                lambda view, text=text, owner=owner: view.find_same(AGENT, owner, text)
            )
            assert (found is not None) == (text in mine)


async def _matching(desk: FullStoreProcess, scope: MemoryScope, word: str) -> Sequence[str]:
    hits = await desk.memories.read(lambda view: view.find_matching(scope, [Term((word,))], 1000))
    assert all(hit.line.startswith(f" {word} ") for hit in hits), "the words of a hit are those of its text"
    return [hit.memory.memory_id for hit in hits]


async def memories_of_others_do_not_crowd_out_an_owner(harness: FullStoreHarness) -> None:
    """An old memory of one owner is found by a word, and by its vector, that hundreds of newer ones of others
    share."""
    async with open_full_store(harness) as desk:
        await desk.memories.add([make_fact(0, "the word of alice", "alice")])
        await desk.memories.add([make_fact(n, f"the word of bob {n}", "bob") for n in range(1, 700)])
        for scope in (scope_of("alice"), scope_of("bob")):
            pending = await MemoryStoreUnderTest(desk.memories).list_unembedded(scope, "test", None, 1000)
            await desk.memories.keep(scope, "test", [(item, make_unit_vector(1, 0.001)) for item in pending])
        assert await _matching_of(desk, scope_of("alice")) == ["mem_0"]
        assert await MemoryStoreUnderTest(desk.memories).near(
            scope_of("alice"), "test", make_unit_vector(1, 0), 5
        ) == ["the word of alice"]


async def _matching_of(desk: FullStoreProcess, scope: MemoryScope) -> list[str]:
    hits = await desk.memories.read(lambda view: view.find_matching(scope, [Term(("word",))], 5))
    return [hit.memory.memory_id for hit in hits]


async def memories_can_be_assigned_to_another_owner(harness: FullStoreHarness) -> None:
    """All memories that match the filters move. A fact that the owner already has is merged: its uses are the sum
    of both."""
    async with open_full_store(harness) as desk:
        await desk.memories.add(
            [make_fact(1, "one", LOCAL_USER), make_fact(2, "two", LOCAL_USER), make_fact(3, "two", "alice")]
        )
        used = Memory(
            memory_id="mem_4",
            agent_id=AGENT,
            kind="long_term",
            text="four",
            created_at=4.0,
            source="person",
            used_at=9.0,
            uses=3,
            pinned=True,
            owner="bob",
        )
        await desk.memories.add([used, make_fact(5, "four", "alice")])
        await _embed(desk, scope_of(LOCAL_USER))
        assert await desk.memories.assign(Assignment("alice", before=LOCAL_USER)) == Assigned(1, 1)
        assert await desk.memories.assign(Assignment("alice", before=LOCAL_USER)) == Assigned()
        assert await desk.memories.assign(Assignment("alice", ("mem_4",), AGENT, "carol")) == Assigned()
        assert await desk.memories.assign(Assignment("alice", ("mem_4",), AGENT, "bob")) == Assigned(0, 1)
        found = {memory.memory_id: memory for memory in await desk.memories.list()}
        assert {key: memory.owner for key, memory in found.items()} == dict.fromkeys(
            ("mem_1", "mem_3", "mem_5"), "alice"
        )
        assert (found["mem_5"].uses, found["mem_5"].used_at, found["mem_5"].pinned) == (3, 9.0, True)
        shelf = MemoryStoreUnderTest(desk.memories)
        assert await shelf.near(scope_of(LOCAL_USER), "test", make_unit_vector(1, 1), 5) == []
        pending = await shelf.list_unembedded(scope_of("alice"), "test", None, 5)
        assert {item.memory.text for item in pending} == {"one", "two", "four"}, "their vectors are recreated"


CHECKS: Final[tuple[FullStoreCheck, ...]] = (
    a_run_has_the_owner_that_its_first_event_names,
    a_session_has_one_owner,
    a_child_run_cannot_use_a_session_of_another_owner,
    the_feed_can_be_read_for_one_owner,
    a_saved_memory_belongs_to_the_owner_of_the_run,
    nothing_crosses_from_one_owner_to_another,
    memories_of_others_do_not_crowd_out_an_owner,
    memories_can_be_assigned_to_another_owner,
)
