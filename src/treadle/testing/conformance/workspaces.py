"""Checks for implementers of a store: grants, sessions and memories belong to a workspace."""

from typing import Final

from treadle.domain.agents import AgentSpec
from treadle.domain.events import MemorySaved, RunQueued, UserMessage
from treadle.domain.ids import RunId
from treadle.domain.memories import Memory, MemoryScope
from treadle.domain.messages import user
from treadle.domain.users import LOCAL_USER
from treadle.domain.workspaces import NO_WORKSPACE, Workspace, WorkspaceId
from treadle.ports.memory import Assigned, Assignment
from treadle.ports.memory_index import Term
from treadle.testing.conformance.memories import MemoryStoreUnderTest, make_unit_vector
from treadle.testing.conformance.store_harness import (
    AGENT,
    FullStoreCheck,
    FullStoreHarness,
    FullStoreProcess,
    open_full_store,
)

ONE, OTHER = "/work/one/.git", "/work/other"


async def _submit(desk: FullStoreProcess, workspace: WorkspaceId, session: str) -> RunId:
    queued = RunQueued(AgentSpec("conformance", "none"), workspace=Workspace(workspace, f"{workspace}/folder"))
    opening = (desk.draft(queued), desk.draft(UserMessage(user("hello"))))
    return await desk.store.submit(desk.origin(session), opening)


def _in(workspace: WorkspaceId | None) -> MemoryScope:
    return MemoryScope(AGENT, LOCAL_USER, workspace)


def _make_fact(number: int, text: str, workspace: WorkspaceId) -> Memory:
    return Memory(
        memory_id=f"mem_{number}",
        agent_id=AGENT,
        kind="long_term",
        text=text,
        created_at=float(number),
        source="person",
        workspace=workspace,
    )


async def a_session_has_the_workspace_of_its_latest_run(harness: FullStoreHarness) -> None:
    """Lists can be filtered by workspace."""
    async with open_full_store(harness) as desk:
        await _submit(desk, ONE, "ses_a")
        await _submit(desk, OTHER, "ses_b")
        await _submit(desk, ONE, "ses_c")
        await _submit(desk, OTHER, "ses_c")
        for workspace, expected in ((ONE, ["ses_a"]), (OTHER, ["ses_c", "ses_b"]), ("/nowhere", [])):
            found = await desk.kept.sessions.newest(workspaces=[workspace])
            assert [each.session_id for each in found] == expected
            assert all(each.workspace == Workspace(workspace, f"{workspace}/folder") for each in found)
        assert len(await desk.kept.sessions.newest(workspaces=[OTHER, "/nowhere", ONE])) == 3
        found = await desk.kept.sessions.basics(desk.origin("ses_c").session_id)
        assert found is not None
        assert found.workspace.id == OTHER


async def the_same_fact_in_two_workspaces_is_two_memories(harness: FullStoreHarness) -> None:
    """A run saves into its own workspace, and a search in one workspace finds nothing of the others."""
    async with open_full_store(harness) as desk:
        await desk.memories.add([_make_fact(1, "the word", ONE), _make_fact(2, "the word", OTHER)])
        assert await desk.memories.add([_make_fact(3, "The word.", ONE)]) == 0
        claim = await desk.store.claim(await _submit(desk, ONE, "ses_a"), "worker")
        await desk.advance(claim, 2, [MemorySaved("mem_4", "another word", "tool")])
        shelf = MemoryStoreUnderTest(desk.memories)
        pending = await shelf.list_unembedded(_in(None), "test", None, 100)
        await desk.memories.keep(_in(None), "test", [(item, make_unit_vector(1, item.number)) for item in pending])
        for workspace, expected in (
            (ONE, {"mem_1", "mem_4"}),
            (OTHER, {"mem_2"}),
            (NO_WORKSPACE, set[str]()),
            (None, {"mem_1", "mem_2", "mem_4"}),
        ):
            scope = _in(workspace)
            words = await desk.memories.read(
                lambda view, scope=scope: view.find_matching(scope, [Term(("word",))], 9)
            )
            near = await shelf.find_nearest(scope, "test", make_unit_vector(1, 1), 9)
            listed = await desk.memories.list(AGENT, workspace=workspace)
            assert {hit.memory.memory_id for hit in words} == expected
            assert {hit.memory.memory_id for hit in near} == expected
            assert {memory.memory_id for memory in listed} == expected
            assert (await shelf.read_overview(scope, "test")).is_empty == (not expected)
        for workspace, expected in ((ONE, "mem_1"), (OTHER, "mem_2"), (NO_WORKSPACE, None)):
            same = await desk.memories.read(
                lambda view, where=workspace: view.find_same(AGENT, LOCAL_USER, "the word", where)
            )
            assert same == expected


async def memories_of_other_workspaces_do_not_crowd_out_one(harness: FullStoreHarness) -> None:
    """An old memory is found by a word, and by its vector, that hundreds of newer ones of another workspace
    share."""
    async with open_full_store(harness) as desk:
        await desk.memories.add([_make_fact(0, "the word of one", ONE)])
        await desk.memories.add([_make_fact(n, f"the word {n}", OTHER) for n in range(1, 700)])
        shelf = MemoryStoreUnderTest(desk.memories)
        pending = await shelf.list_unembedded(_in(None), "test", None, 1000)
        await desk.memories.keep(_in(None), "test", [(item, make_unit_vector(1, 0.001)) for item in pending])
        hits = await desk.memories.read(lambda view: view.find_matching(_in(ONE), [Term(("word",))], 5))
        assert [hit.memory.memory_id for hit in hits] == ["mem_0"]
        assert await shelf.near(_in(ONE), "test", make_unit_vector(1, 0), 5) == ["the word of one"]


async def memories_can_be_assigned_to_a_workspace(harness: FullStoreHarness) -> None:
    """Those that match move, each keeps its owner, and a fact that is there already is merged."""
    async with open_full_store(harness) as desk:
        await desk.memories.add(
            [_make_fact(1, "one", NO_WORKSPACE), _make_fact(2, "two", NO_WORKSPACE), _make_fact(3, "two", ONE)]
        )
        await desk.memories.add([_make_fact(4, "four", OTHER)])
        unassigned = Assignment(workspace=ONE, before_workspace=NO_WORKSPACE)
        assert await desk.memories.assign(unassigned) == Assigned(1, 1)
        assert await desk.memories.assign(unassigned) == Assigned()
        assert await desk.memories.assign(Assignment(memory_ids=("mem_4",), workspace=ONE)) == Assigned(1, 0)
        found = await desk.memories.list(AGENT)
        assert {(memory.text, memory.workspace, memory.owner) for memory in found} == {
            (text, ONE, LOCAL_USER) for text in ("one", "two", "four")
        }
        hits = await desk.memories.read(lambda view: view.find_matching(_in(ONE), [Term(("four",))], 5))
        assert [hit.memory.memory_id for hit in hits] == ["mem_4"]


CHECKS: Final[tuple[FullStoreCheck, ...]] = (
    a_session_has_the_workspace_of_its_latest_run,
    the_same_fact_in_two_workspaces_is_two_memories,
    memories_of_other_workspaces_do_not_crowd_out_one,
    memories_can_be_assigned_to_a_workspace,
)
