"""Checks for implementers of `ports.deletion.Deletions`."""

import asyncio
from typing import Final

from treadle.domain.errors import InvalidState, RunDeleted, SessionDeleted, TreadleError, UnknownSession
from treadle.domain.events import JournalWritten, MemoryRecalled, MemorySaved, Reminder
from treadle.domain.ids import RunId, SessionId
from treadle.domain.webhooks import DeadLetter, Webhook, WebhookId
from treadle.ports.access import IdempotentRequest, StoredResponse
from treadle.ports.journal import RunFilter
from treadle.testing.conformance.store import check_refused
from treadle.testing.conformance.store_harness import (
    AGENT,
    FullStoreCheck,
    FullStoreHarness,
    FullStoreProcess,
    open_full_store,
    open_full_store_twice,
)

BY = "a person"


async def _make_ended_run(desk: FullStoreProcess, session: str, about: str) -> RunId:
    """Create an ended run that has left a memory and a note."""
    claim = await desk.claimed(session)
    saved = MemorySaved(f"mem_{about}", f"The {about} is blue.", "tool"), JournalWritten(f"mem_n{about}", about)
    await desk.advance(claim, 2, saved)
    await desk.end(claim, 4)
    return claim.origin.run_id


async def _list_sessions(desk: FullStoreProcess) -> set[str]:
    """Return the existing sessions."""
    return {record.origin.session_id for record in await desk.store.find(RunFilter(), 1000)}


async def a_deleted_session_leaves_nothing(harness: FullStoreHarness) -> None:
    """No runs, events, memories, responses that name it or dead letters remain, only the record of its deletion.
    Others are unchanged, and it cannot be started again."""
    async with open_full_store_twice(harness) as (desk, other):
        await desk.store.agent("ada", AGENT)
        gone, kept = (
            await _make_ended_run(desk, "ses_gone", "walrus"),
            await _make_ended_run(desk, "ses_kept", "heron"),
        )
        for number, named in enumerate((gone, "ses_gone", kept)):
            asked = IdempotentRequest(None, "POST", f"k{number}")
            await desk.kept.requests.begin(asked, b"d", 5e9)
            await desk.kept.requests.answer(asked, StoredResponse(b"d", 202, f'{{"id": "{named}"}}'.encode()))
        webhook = Webhook(
            webhook_id=WebhookId("w"),
            url="https://x/",
            events=("*",),
            agents=None,
            most_attempts=None,
            created_at=1.0,
            delivered_at=None,
            attempts=0,
            retry_at=None,
            problem="",
            disabled=False,
            position=0,
        )
        await desk.kept.webhooks.add(webhook)
        for run_id in (gone, kept):
            event = (await desk.gapless(run_id))[0]
            letter = DeadLetter(
                webhook_id=webhook.webhook_id,
                event_id=event.event_id,
                run_id=run_id,
                sequence=1,
                type=event.type,
                attempts=1,
                reason="no",
                died_at=1.0,
                queued=False,
            )
            await desk.kept.webhooks.move(webhook, letter)
        position = await desk.store.position()
        [tombstone] = await desk.kept.deletions.delete(SessionId("ses_gone"), BY)
        assert (tombstone.session_id, tombstone.agent, tombstone.runs) == ("ses_gone", "ada", 1)
        assert (tombstone.events, tombstone.memories, tombstone.deleted_by) == (5, 2, BY)
        assert tombstone.first_at == tombstone.latest_at == tombstone.deleted_at == desk.clock.now()
        for process in (desk, other):
            words = await check_refused(process.store.read(gone), RunDeleted)
            assert "ses_gone" in words
            assert BY in words
            await check_refused(process.submit("ses_gone"), SessionDeleted)
            assert await _list_sessions(process) == {"ses_kept"}
        assert [item.memory_id for item in await desk.memories.list()] == ["mem_nheron", "mem_heron"]
        again = [
            await desk.kept.requests.begin(IdempotentRequest(None, "POST", f"k{n}"), b"e", 5e9) for n in range(3)
        ]
        assert [answered.status for answered in again] == [None, None, 202]
        assert [letter.run_id for letter in await desk.kept.webhooks.list_letters(webhook.webhook_id)] == [kept]
        await _make_ended_run(desk, "ses_new", "stork")
        assert len(await other.store.after(position)) == 5, "later events have later positions"
        await check_refused(desk.kept.deletions.delete(SessionId("ses_gone"), BY), SessionDeleted)
        assert "sessions list" in await check_refused(
            desk.kept.deletions.delete(SessionId("ses_9"), BY), UnknownSession
        )


async def a_session_with_a_run_in_progress_is_not_deleted(harness: FullStoreHarness) -> None:
    """The refusal says what to do, and nothing is deleted, even if the run is in a child session."""
    async with open_full_store(harness) as desk:
        claim = await desk.claimed("ses_1")
        child = desk.child(claim, "ses_child")
        await desk.advance(claim, 2, [], [], begin=(child,))
        await desk.end(claim, 2)
        words = await check_refused(desk.kept.deletions.delete(SessionId("ses_1"), BY), InvalidState)
        assert f"treadle runs cancel {child.origin.run_id}" in words
        assert await _list_sessions(desk) == {"ses_1", "ses_child"}
        assert await desk.kept.deletions.prune([SessionId("ses_child")], 5e9, BY) == []
        await desk.end(await desk.claim(child.origin.run_id), 2)
        assert len(await desk.kept.deletions.delete(SessionId("ses_1"), BY)) == 2


async def child_sessions_are_deleted_and_shared_ones_are_not(harness: FullStoreHarness) -> None:
    """The requested session comes first."""
    async with open_full_store(harness) as desk:
        await _make_ended_run(desk, "ses_alone", "heron")
        claim = await desk.claimed("ses_top")
        children = [desk.child(claim, session) for session in ("ses_child", "ses_shared")]
        await desk.advance(claim, 2, [], [], begin=children)
        await desk.end(claim, 2)
        below = await desk.claim(children[0].origin.run_id)
        grandchild = desk.child(below, "ses_below")
        await desk.advance(below, 2, [], [], begin=(grandchild,))
        await desk.end(below, 2)
        for new in (grandchild, children[1]):
            await desk.end(await desk.claim(new.origin.run_id), 2)
        await _make_ended_run(desk, "ses_shared", "stork")
        done = await desk.kept.deletions.delete(SessionId("ses_top"), BY)
        assert [tombstone.session_id for tombstone in done] == ["ses_top", "ses_child", "ses_below"]
        assert await _list_sessions(desk) == {"ses_alone", "ses_shared"}


async def only_idle_sessions_are_pruned(harness: FullStoreHarness) -> None:
    """The oldest are listed first."""
    async with open_full_store(harness) as desk:
        deletions = desk.kept.deletions
        await desk.store.agent("ada", AGENT)
        began = desk.clock.now()
        for session in ("ses_1", "ses_2", "ses_3"):
            await _make_ended_run(desk, session, session)
            desk.clock.pass_time(100)
        await desk.submit("ses_waiting")
        listed = await deletions.idle(began + 150)
        assert [(idle.session_id, idle.agent, idle.runs, idle.unfinished, idle.events) for idle in listed] == [
            ("ses_1", "ada", 1, 0, 5), ("ses_2", "ada", 1, 0, 5),
        ]  # fmt: skip
        assert [(idle.first_at, idle.latest_at) for idle in listed] == [(began, began), (began + 100, began + 100)]
        assert list(await deletions.idle(began + 150, "bob")) == []
        assert len(await deletions.idle(5e9, "ada")) == 3, "of those that have ended"
        await _make_ended_run(desk, "ses_1", "again")
        names = [SessionId(name) for name in ("ses_2", "ses_1", "ses_3", "ses_none", "ses_waiting")]
        assert [buried.session_id for buried in await deletions.prune(names, began + 150, BY)] == ["ses_2"]
        assert await _list_sessions(desk) == {"ses_1", "ses_3", "ses_waiting"}


async def sessions_that_recalled_its_memories_are_listed(harness: FullStoreHarness) -> None:
    """Their journals contain the text."""
    async with open_full_store(harness) as desk:
        await _make_ended_run(desk, "ses_1", "walrus")
        assert list(await desk.kept.deletions.find_recalling_sessions(SessionId("ses_1"))) == []
        for session, named in (("ses_2", "mem_walrus"), ("ses_1", "mem_walrus"), ("ses_3", "mem_other")):
            claim = await desk.claimed(session)
            await desk.advance(claim, 2, [MemoryRecalled((Reminder(named),), "section")])
        assert list(await desk.kept.deletions.find_recalling_sessions(SessionId("ses_1"))) == ["ses_2"]


async def old_responses_are_cleared(harness: FullStoreHarness) -> None:
    """They are counted, and deleted sessions stay deleted."""
    async with open_full_store(harness) as desk:
        await _make_ended_run(desk, "ses_1", "walrus")
        await desk.kept.deletions.delete(SessionId("ses_1"), BY)
        for at in (1.0, 2.0, 3.0):
            await desk.kept.requests.begin(IdempotentRequest(None, "POST", str(at)), b"d", at)
        assert await desk.kept.deletions.clear(3.0) == 2
        assert await desk.kept.deletions.clear(3.0) == 0
        assert await _list_sessions(desk) == set()


async def a_concurrent_submission_comes_before_or_after_a_deletion(harness: FullStoreHarness) -> None:
    """A run submitted while its session is deleted is either in the session, and then nothing is deleted, or
    refused. Of two concurrent deletions, one succeeds."""
    async with open_full_store_twice(harness) as (one, two):
        for number in range(6):
            session = SessionId(f"ses_{number}")
            await _make_ended_run(one, session, f"walrus{number}")
            attempts = (
                one.kept.deletions.delete(session, BY),
                two.submit(session),
                two.kept.deletions.delete(session, BY),
            )
            told = await asyncio.gather(*attempts, return_exceptions=True)
            assert not [error for error in told if isinstance(error, BaseException) and not _is_refusal(error)]
            done = [result for result in (told[0], told[2]) if not isinstance(result, BaseException)]
            assert len(done) == (1 if isinstance(told[1], BaseException) else 0)
            assert (session in await _list_sessions(one)) == (not done)


def _is_refusal(error: BaseException) -> bool:
    return isinstance(error, TreadleError) and isinstance(error, SessionDeleted | InvalidState)


CHECKS: Final[tuple[FullStoreCheck, ...]] = (
    a_deleted_session_leaves_nothing,
    a_session_with_a_run_in_progress_is_not_deleted,
    child_sessions_are_deleted_and_shared_ones_are_not,
    only_idle_sessions_are_pruned,
    sessions_that_recalled_its_memories_are_listed,
    old_responses_are_cleared,
    a_concurrent_submission_comes_before_or_after_a_deletion,
)
