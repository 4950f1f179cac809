"""Checks for implementers of `ports.journal.Runs` and `ports.accounts.Accounts`: tags and metadata of runs."""

from typing import Final

from treadle.domain.agents import AgentSpec
from treadle.domain.events import LlmResponse, RunQueued, UserMessage
from treadle.domain.ids import RunId, SessionId
from treadle.domain.labels import Labels
from treadle.domain.messages import user
from treadle.domain.runs import Usage
from treadle.domain.users import LOCAL_USER, UserId, journaled_owner
from treadle.ports.accounts import UsageFilter, UsageKey
from treadle.ports.journal import RunFilter
from treadle.testing.conformance.store_harness import (
    FullStoreCheck,
    FullStoreHarness,
    FullStoreProcess,
    open_full_store,
    open_full_store_twice,
)

VIP = Labels(("vip", "eu"), {"ticket": "42", "note": "a=b \u00e9"})


async def _submit(
    desk: FullStoreProcess,
    labels: Labels = VIP,
    owner: UserId = LOCAL_USER,
    session: str | None = None,
) -> RunId:
    queued = RunQueued(
        AgentSpec("conformance", "none"), owner=journaled_owner(owner), tags=labels.tags, metadata=labels.metadata
    )
    drafts = (desk.draft(queued), desk.draft(UserMessage(user("hello"))))
    return await desk.store.submit(desk.origin(session), drafts)


async def _find(
    desk: FullStoreProcess, labels: Labels, *owners: UserId, before: RunId | None = None
) -> list[RunId]:
    wanted = RunFilter(labels=labels, owners=owners or None, before=before)
    return [record.origin.run_id for record in await desk.store.find(wanted)]


async def a_run_has_the_labels_that_its_first_event_names(harness: FullStoreHarness) -> None:
    """Every list shows them, and every process sees them."""
    async with open_full_store_twice(harness) as (desk, other):
        run_id, plain = await _submit(desk, session="ses_1"), await _submit(desk, Labels(), session="ses_1")
        for process in (desk, other):
            assert (await process.store.record(run_id)).labels == VIP
            assert [record.labels for record in await process.store.find()] == [Labels(), VIP]
            assert [record.labels for record in await process.store.list_unfinished()] == [VIP, Labels()]
            listed = await process.kept.sessions.runs(SessionId("ses_1"))
            assert [(record.origin.run_id, record.labels) for record in listed] == [
                (run_id, VIP),
                (plain, Labels()),
            ]


async def runs_are_found_by_all_labels_of_a_filter(harness: FullStoreHarness) -> None:
    """Tags and metadata are compared exactly. The newest runs come first, in pages."""
    async with open_full_store(harness) as desk:
        first, second = await _submit(desk), await _submit(desk)
        tagged = await _submit(desk, Labels(("vip",)))
        other = await _submit(desk, Labels((), {"vip": "", "ticket": "4"}))
        await _submit(desk, Labels())
        assert await _find(desk, Labels(("vip",))) == [tagged, second, first]
        assert await _find(desk, Labels(("vip",)), before=second) == [first]
        assert await _find(desk, Labels(("eu", "vip"))) == [second, first]
        assert await _find(desk, Labels(("vip",), {"ticket": "42"})) == [second, first]
        assert await _find(desk, Labels((), {"ticket": "4"})) == [other]
        assert await _find(desk, Labels((), {"note": "a=b \u00e9", "ticket": "42"})) == [second, first]
        for missing in (Labels(("VIP",)), Labels(("vip", "us")), Labels((), {"ticket": "vip"}), Labels(("42",))):
            assert await _find(desk, missing) == []
        ended = await desk.claim(first)
        await desk.end(ended, 2, "done")
        both = RunFilter(labels=Labels(("vip",)), outcome="completed", min_cost=0.0, text="HELLO")
        assert [record.origin.run_id for record in await desk.store.find(both)] == [first]


async def labels_are_found_among_the_runs_of_an_owner(harness: FullStoreHarness) -> None:
    """A filter that names owners finds nothing of others, and a run of another owner is not a valid cursor."""
    async with open_full_store(harness) as desk:
        runs = {
            owner: [await _submit(desk, owner=owner) for _ in range(2)] for owner in ("alice", "bob", LOCAL_USER)
        }
        for owner, ids in runs.items():
            assert await _find(desk, Labels(("vip",)), owner) == ids[::-1]
            assert await _find(desk, Labels((), {"ticket": "42"}), owner, before=ids[1]) == ids[:1]
        assert await _find(desk, VIP, "alice", "bob", "carol") == [*runs["bob"][::-1], *runs["alice"][::-1]]
        assert await _find(desk, Labels(), "alice", "bob") == [*runs["bob"][::-1], *runs["alice"][::-1]]
        assert await _find(desk, Labels(("vip",)), "alice", before=runs["bob"][1]) == []
        assert await _find(desk, Labels(("vip",)), "carol") == []


async def deleted_runs_leave_no_labels(harness: FullStoreHarness) -> None:
    """A session is deleted with the labels of its runs. Those of other runs stay."""
    async with open_full_store(harness) as desk:
        gone, kept = await _submit(desk, session="ses_1"), await _submit(desk, session="ses_2")
        await desk.end(await desk.claim(gone), 2, "done")
        await desk.kept.deletions.delete(SessionId("ses_1"), "a person")
        assert await _find(desk, Labels(("vip",))) == [kept]
        assert await _find(desk, VIP, LOCAL_USER) == [kept]


async def usage_is_counted_by_tag_and_user(harness: FullStoreHarness) -> None:
    """Usage without a tag is told apart, and so is that of each user. Other groups do not tell them apart."""
    async with open_full_store(harness) as desk:
        await _use(desk, VIP, "alice", 1)
        await _use(desk, Labels(("vip",)), "bob", 2)
        await _use(desk, Labels(), "bob", 4)

        async def sum_up(
            by: UsageKey, tags: tuple[str, ...] = (), owners: tuple[UserId, ...] | None = None
        ) -> list[tuple[str, tuple[str, ...], int]]:
            found = await desk.kept.accounts.usage(UsageFilter(by=by, tags=tags, owners=owners))
            return [(used.owner, used.tags, used.input_tokens) for used in found]

        assert await sum_up("agent") == [("", (), 7)]
        assert await sum_up("user") == [("alice", (), 1), ("bob", (), 6)]
        assert sorted(await sum_up("tag")) == [("", (), 4), ("", ("eu", "vip"), 1), ("", ("vip",), 2)]
        assert await sum_up("agent", tags=("vip",)) == [("", (), 3)]
        assert await sum_up("user", tags=("vip", "eu")) == [("alice", (), 1)]
        assert await sum_up("agent", owners=("bob",)) == [("", (), 6)]
        assert await sum_up("agent", owners=("bob",), tags=("vip",)) == [("", (), 2)]
        assert await sum_up("agent", owners=()) == await sum_up("agent", tags=("none",)) == []


async def _use(desk: FullStoreProcess, labels: Labels, owner: UserId, tokens: int) -> None:
    claim = await desk.claim(await _submit(desk, labels, owner))
    await desk.advance(claim, 2, [LlmResponse(1, 1, (), "end_turn", usage=Usage(tokens), duration_ms=1)])
    await desk.end(claim, 3, "done")


CHECKS: Final[tuple[FullStoreCheck, ...]] = (
    a_run_has_the_labels_that_its_first_event_names,
    runs_are_found_by_all_labels_of_a_filter,
    labels_are_found_among_the_runs_of_an_owner,
    deleted_runs_leave_no_labels,
    usage_is_counted_by_tag_and_user,
)
