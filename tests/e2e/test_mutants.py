"""Engines with one deliberate fault each. If no schedule finds the fault, an invariant is missing."""

import asyncio
import gc
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import msgspec
import pytest

from treadle.core import accounts, decide
from treadle.core.environment import Environment
from treadle.core.fold import registry
from treadle.core.fold import run as fold_life
from treadle.core.guards import quota
from treadle.core.state import RunState
from treadle.core.steps import CallModel, Compact, Evaluate, Finish, RunTools
from treadle.core.tools import plan
from treadle.core.tools.ledger import Call
from treadle.domain import events as e
from treadle.domain.envelope import Draft, Event, Origin
from treadle.domain.errors import NotClaimable
from treadle.domain.events import EventData
from treadle.domain.ids import Instant, RunId
from treadle.domain.lineage import TreeCeiling
from treadle.engine import loop as engine_loop
from treadle.engine import model_resolution, tool_preparation
from treadle.engine.event_hub import EventHub
from treadle.engine.owned_run import ChildMessage, OwnedRun, Receipt
from treadle.ports.accounts import Ceilings
from treadle.ports.journal import ANY, Advance, Advanced, Claim
from treadle.stores.sqlite import transaction
from treadle.stores.sqlite.connection import SqliteDatabase
from treadle.stores.sqlite.journal import SqliteJournal
from treadle.stores.usage_counts import Payer, rebuild_payer
from treadle.testing.faults import FaultyJournal
from treadle.testing.simulation.__main__ import schedule_of
from treadle.testing.simulation.scenario import SimulationSchedule, simulate
from treadle.testing.simulation.world import PROCESS, SimulatedProcess, Violation

SCHEDULES = 300

Mutation = Callable[[pytest.MonkeyPatch], None]


def get_current_process() -> SimulatedProcess:
    process = PROCESS.get()
    assert process is not None
    return process


def orphans_run_again(patch: pytest.MonkeyPatch) -> None:
    """Run a call whose outcome is unknown again, whatever its tool declares."""
    judge = vars(plan)["_judge_call"]

    def careless(state: RunState, call: Call, now: Instant) -> Any:
        return None if call.phase == "started" and call.name in state.tools else judge(state, call, now)

    patch.setattr(plan, "_judge_call", careless)


def approvals_are_skipped(patch: pytest.MonkeyPatch) -> None:
    """Run calls that need an approval without one."""

    async def permitted(*_: Any) -> None:
        return None

    patch.setattr(tool_preparation, "_check_permission", permitted)


def denials_count_as_approvals(patch: pytest.MonkeyPatch) -> None:
    judge = vars(plan)["_check_approval"]

    def approved(state: RunState, call: Call, asked: e.ApprovalRequested, now: Instant) -> Any:
        return None if asked.approval_id in state.review.decisions else judge(state, call, asked, now)

    patch.setattr(plan, "_check_approval", approved)


def edited_arguments_are_ignored(patch: pytest.MonkeyPatch) -> None:
    seen = vars(tool_preparation)["_apply_hooks"]

    async def unedited(call: Call, tool: Any, _: str, *rest: Any) -> Any:
        return await seen(call, tool, call.use.arguments, *rest)

    patch.setattr(tool_preparation, "_apply_hooks", unedited)


def an_approval_has_many_answers(patch: pytest.MonkeyPatch) -> None:
    """Each answer is delivered under a key of its own."""
    deliver = FaultyJournal.deliver

    async def anew(self: FaultyJournal, run_id: RunId, event: Draft, key: str, seen: int = ANY) -> int | None:
        get_current_process().world.disk.execute("UPDATE approvals SET decision = NULL")
        return await deliver(self, run_id, event, event.event_id if key.startswith("apr") else key, seen)

    patch.setattr(FaultyJournal, "deliver", anew)


def intents_are_always_accepted(patch: pytest.MonkeyPatch) -> None:
    """Accept intents of an owner that has not seen all deliveries."""
    advance = FaultyJournal.advance

    async def blind(self: FaultyJournal, wanted: Advance) -> Advanced:
        return await advance(self, msgspec.structs.replace(wanted, seen=ANY))

    patch.setattr(FaultyJournal, "advance", blind)


def stale_owners_can_write(patch: pytest.MonkeyPatch) -> None:
    """Accept every append as one of the present owner."""
    advance = SqliteJournal.advance

    async def unfenced(self: SqliteJournal, wanted: Advance) -> Advanced:
        row = (
            get_current_process()
            .world.disk.execute("SELECT epoch FROM runs WHERE run_id = ?", (wanted.run_id,))
            .fetchone()
        )
        return await advance(self, msgspec.structs.replace(wanted, epoch=row[0] if row else wanted.epoch))

    patch.setattr(SqliteJournal, "advance", unfenced)


def leases_do_not_hold(patch: pytest.MonkeyPatch) -> None:
    """Let a run be claimed while a healthy worker owns it, without fencing that worker."""
    stale_owners_can_write(patch)
    claim = FaultyJournal.claim

    async def greedy(self: FaultyJournal, run_id: RunId, worker: str) -> Claim:
        get_current_process().world.disk.execute("UPDATE runs SET lease_until = 0 WHERE run_id = ?", (run_id,))
        return await claim(self, run_id, worker)

    patch.setattr(FaultyJournal, "claim", greedy)


def results_of_clients_are_acknowledged_too_early(patch: pytest.MonkeyPatch) -> None:
    """Acknowledge a result that a run in memory has, before it is committed."""
    receive = OwnedRun.receive

    def early(self: OwnedRun, made: Draft, key: str) -> Receipt | None:
        receipt = receive(self, made, key)
        if receipt is not None:

            async def wait() -> int:
                return self.state.sequence

            patch.setattr(receipt, "wait", wait)
        return receipt

    patch.setattr(OwnedRun, "receive", early)


def steered_messages_are_dropped(patch: pytest.MonkeyPatch) -> None:
    patch.delitem(registry.HANDLERS, e.MessageSteered)


def cancels_are_dropped(patch: pytest.MonkeyPatch) -> None:
    patch.delitem(registry.HANDLERS, e.CancelRequested)


def results_are_recorded_twice(patch: pytest.MonkeyPatch) -> None:
    record = OwnedRun.record

    def stutter(self: OwnedRun, *facts: EventData) -> None:
        record(self, *(fact for fact in facts for _ in range(2 if isinstance(fact, e.ToolCallEnd) else 1)))

    patch.setattr(OwnedRun, "record", stutter)


def results_are_lost(patch: pytest.MonkeyPatch) -> None:
    record = OwnedRun.record

    def forgetful(self: OwnedRun, *facts: EventData) -> None:
        record(self, *facts)
        get_current_process().world.effects.clear()

    patch.setattr(OwnedRun, "record", forgetful)


def tools_run_before_their_intent(patch: pytest.MonkeyPatch) -> None:
    """Commit the intent with the result, not before the effect."""
    intend = OwnedRun.intend

    async def hasty(self: OwnedRun, *intents: EventData, **more: Any) -> bool:
        starts = [data for data in intents if isinstance(data, e.ToolCallStart)]
        if not starts or more.get("begin"):
            return await intend(self, *intents, **more)
        self.record(*intents)
        return True

    patch.setattr(OwnedRun, "intend", hasty)


def sessions_are_out_of_order(patch: pytest.MonkeyPatch) -> None:
    """Start a run before the previous one of its session has ended."""
    claim = FaultyJournal.claim

    async def impatient(self: FaultyJournal, run_id: RunId, worker: str) -> Claim:
        disk = get_current_process().world.disk
        disk.execute(
            "UPDATE runs SET session_id = '!' || session_id "
            "WHERE session_id = (SELECT session_id FROM runs WHERE run_id = ?1) AND run_id != ?1",
            (run_id,),
        )
        try:
            return await claim(self, run_id, worker)
        finally:
            disk.execute("UPDATE runs SET session_id = ltrim(session_id, '!')")

    patch.setattr(FaultyJournal, "claim", impatient)


def readers_miss_events(patch: pytest.MonkeyPatch) -> None:
    """Drop the last event when a reader catches up. The first event of a run is also read alone."""
    read = FaultyJournal.read

    async def short(self: FaultyJournal, run_id: RunId, after: int = 0, limit: int = 1000) -> Sequence[Event]:
        found = await read(self, run_id, after, limit)
        return found if limit == 1 else found[:-1]

    patch.setattr(FaultyJournal, "read", short)


def wakes_are_lost(patch: pytest.MonkeyPatch) -> None:
    """Wake no run, and let no sweep find a runnable one."""

    async def blind(self: FaultyJournal, limit: int = 100) -> Sequence[RunId]:
        return []

    patch.setattr(FaultyJournal, "runnable", blind)


def readers_do_not_see_the_end(patch: pytest.MonkeyPatch) -> None:
    committed = EventHub.on_committed

    def silent(self: EventHub, origin: Origin, first: int, drafts: Sequence[Draft]) -> None:
        committed(self, origin, first, [made for made in drafts if made.type != "run_end"])

    patch.setattr(EventHub, "on_committed", silent)


def events_are_published_under_each_others_numbers(patch: pytest.MonkeyPatch) -> None:
    committed = EventHub.on_committed

    def muddled(self: EventHub, origin: Origin, first: int, drafts: Sequence[Draft]) -> None:
        end = [made for made in drafts if made.type == "run_end"]
        others = [made for made in drafts if made.type != "run_end"]
        committed(self, origin, first, [*reversed(others), *end])

    patch.setattr(EventHub, "on_committed", muddled)


def events_are_published_before_they_are_committed(patch: pytest.MonkeyPatch) -> None:
    advance = FaultyJournal.advance

    async def rash(self: FaultyJournal, wanted: Advance) -> Advanced:
        if wanted.seen != ANY:
            process = get_current_process()
            row = process.world.disk.execute(
                "SELECT session_id, agent_id FROM runs WHERE run_id = ?", (wanted.run_id,)
            ).fetchone()
            assert row is not None
            process.hub.on_committed(Origin(wanted.run_id, *row), wanted.seen + 1, (*wanted.facts, *wanted.intents))
        return await advance(self, wanted)

    patch.setattr(FaultyJournal, "advance", rash)


def lost_calls_are_free(patch: pytest.MonkeyPatch) -> None:
    """Release the reservation of a worker that died without settling it."""

    def forgive(db: SqliteDatabase, run: int, _: Instant) -> None:
        db.execute("DELETE FROM reservations WHERE run = ?", (run,))

    patch.setattr(transaction, "settle_lost_call", forgive)


def replies_are_not_settled(patch: pytest.MonkeyPatch) -> None:
    def unpaid(*_: object) -> None:
        """Settle nothing."""

    patch.setattr(transaction, "settle", unpaid)


def runs_are_counted_twice(patch: pytest.MonkeyPatch) -> None:
    """Count a run again when another worker takes it over."""

    def anew(events: Sequence[Any], written: int) -> Payer:
        payer = rebuild_payer(events, written)
        payer.counted = False
        return payer

    patch.setattr(transaction, "rebuild_payer", anew)


# ── Runs under runs ──


def nothing(*_: object) -> tuple[()]:
    return ()


def plenty(*_: object) -> int:
    return 100


def the_end(_: RunState, finish: Finish, __: Instant) -> Finish:
    return finish


def ends_are_not_reported(patch: pytest.MonkeyPatch) -> None:
    """Never deliver the end of a child run to its parent."""
    patch.setattr(engine_loop, "notify_of_end", nothing)


def ends_are_reported_twice(patch: pytest.MonkeyPatch) -> None:
    told = engine_loop.notify_of_end

    def stutter(*args: Any) -> tuple[ChildMessage, ...]:
        return tuple(
            [msgspec.structs.replace(each, key=f"{each.key}, {n}") for each in told(*args) for n in range(2)]
        )

    patch.setattr(engine_loop, "notify_of_end", stutter)


def children_are_left_behind(patch: pytest.MonkeyPatch) -> None:
    """End a run without cancelling its child runs."""
    patch.setattr(decide, "stop_children_first", the_end)


def children_have_every_tool(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(model_resolution, "may_use_tool", plenty)


def children_are_begun_in_a_commit_of_their_own(patch: pytest.MonkeyPatch) -> None:
    """Commit the intent and the child separately: a crash in between leaves one without the other."""
    advance = FaultyJournal.advance

    async def in_two(self: FaultyJournal, wanted: Advance) -> Advanced:
        advanced = await advance(self, msgspec.structs.replace(wanted, begin=()))
        for new in wanted.begin if advanced.accepted else ():
            await self.submit(new.origin, new.events)
        return advanced

    patch.setattr(FaultyJournal, "advance", in_two)


def trees_grow_for_ever(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(quota, "list_child_run_accounts", nothing)


def children_spend_for_themselves(patch: pytest.MonkeyPatch) -> None:
    """Ignore the budgets of the parents for a child run."""

    def own(trees: tuple[TreeCeiling, ...]) -> tuple[Ceilings, ...]:
        return accounts.list_model_call_accounts(trees[:1])

    patch.setattr(fold_life, "list_model_call_accounts", own)


def any_number_runs_at_a_time(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(plan, "free_child_slots", plenty)


def a_judged_run_forgets_its_calls(patch: pytest.MonkeyPatch) -> None:
    """Leave calls without a result when the end of a run is evaluated."""
    judges = decide.evaluate_end

    def forgetful(*args: Any) -> Any:
        step = judges(*args)
        return msgspec.structs.replace(step, events=()) if isinstance(step, Evaluate) else step

    patch.setattr(decide, "evaluate_end", forgetful)


def a_judge_can_fail_a_run(patch: pytest.MonkeyPatch) -> None:
    """Lose the answer of a run that is sent back and cannot continue."""

    def hasty(state: RunState, step: Any, environment: Environment) -> Any:
        short = environment.refused
        if short is None or short.kind == "runs" or not isinstance(step, CallModel | RunTools | Compact):
            return refusal(state, step, environment)
        return quota.judge(state, short, environment.now)

    refusal = decide._apply_refusal  # pyright: ignore[reportPrivateUsage] -- the mutated function
    patch.setattr(decide, "_apply_refusal", hasty)


MUTANTS: tuple[Mutation, ...] = (
    orphans_run_again,
    approvals_are_skipped,
    denials_count_as_approvals,
    edited_arguments_are_ignored,
    an_approval_has_many_answers,
    results_of_clients_are_acknowledged_too_early,
    intents_are_always_accepted,
    stale_owners_can_write,
    leases_do_not_hold,
    steered_messages_are_dropped,
    cancels_are_dropped,
    results_are_recorded_twice,
    results_are_lost,
    tools_run_before_their_intent,
    sessions_are_out_of_order,
    readers_miss_events,
    wakes_are_lost,
    lost_calls_are_free,
    replies_are_not_settled,
    runs_are_counted_twice,
    ends_are_not_reported,
    ends_are_reported_twice,
    children_are_left_behind,
    children_have_every_tool,
    children_are_begun_in_a_commit_of_their_own,
    trees_grow_for_ever,
    children_spend_for_themselves,
    any_number_runs_at_a_time,
    a_judged_run_forgets_its_calls,
    a_judge_can_fail_a_run,
)
AMONG_WORKERS = (stale_owners_can_write, leases_do_not_hold)
"""What matters only where two processes work on one store."""
PUBLISHING: tuple[Mutation, ...] = (
    readers_do_not_see_the_end,
    events_are_published_under_each_others_numbers,
    events_are_published_before_they_are_committed,
)
"""What readers are told: the simulation holds it against the journal, event by event."""


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it may drop coroutines
@pytest.mark.parametrize("mutate", MUTANTS, ids=lambda mutation: mutation.__name__)
def test_a_broken_engine_is_noticed(mutate: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch)
    workers = 2 if mutate in AMONG_WORKERS else 1
    assert find_violation(workers), f"{SCHEDULES} schedules, and none noticed"


@pytest.mark.parametrize("mutate", PUBLISHING, ids=lambda mutation: mutation.__name__)
def test_a_broken_publisher_is_noticed(mutate: Mutation, monkeypatch: pytest.MonkeyPatch) -> None:
    mutate(monkeypatch)
    assert find_violation(workers=1), f"{SCHEDULES} schedules, and none noticed"


def find_violation(workers: Literal[1, 2]) -> str | None:
    """Return the first violation that a schedule finds."""
    for seed in range(SCHEDULES):
        try:
            simulate(SimulationSchedule(seed, workers))
        except Violation as violation:
            return str(violation)
    return None


@pytest.fixture(autouse=True)
def end_leftover_tasks() -> Iterator[None]:
    """End the tasks that a failed simulation leaves behind, so that they do not disturb other tests."""
    logging.disable(logging.CRITICAL)
    yield
    gc.collect()
    logging.disable(logging.NOTSET)


def test_the_unchanged_engine_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The wrapper that makes mutants breaks nothing without a mutation."""
    claim = FaultyJournal.claim

    async def wrapped(self: FaultyJournal, run_id: RunId, worker: str) -> Claim:
        try:
            return await claim(self, run_id, worker)
        except (NotClaimable, asyncio.CancelledError):
            raise

    monkeypatch.setattr(FaultyJournal, "claim", wrapped)
    for seed in range(20):
        simulate(schedule_of(seed))
