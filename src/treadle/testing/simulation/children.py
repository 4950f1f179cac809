"""Invariants of child runs: none is lost, left behind or reported twice, and none has more rights than its
ancestors."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import TypeVar

from msgspec import Struct

from treadle.core.subagents.supervision import GRACE_SECONDS
from treadle.domain.envelope import Event
from treadle.domain.events import (
    AgentEnd,
    AgentSpawn,
    AgentTold,
    BudgetReserved,
    CancelRequested,
    CompactionFailed,
    ContextCompacted,
    ErrorAnalyzed,
    EventData,
    LlmError,
    LlmResponse,
    MessageSteered,
    QualityScored,
    RunEnd,
    RunQueued,
    RunStart,
    StepStart,
)
from treadle.domain.ids import RunId
from treadle.domain.lineage import EVALUATOR_ROLES
from treadle.testing.simulation.world import Violation, World

SLACK = 60.0
"""Seconds that a process may be dead or stalled while a run should end."""
Data = TypeVar("Data", bound=EventData)


class RunJournal(Struct, frozen=True):
    """A run with all its events and their positions in the order of commits."""

    run_id: RunId
    parent: RunId | None
    events: Sequence[Event]
    positions: Sequence[int]

    def all(self, kind: type[Data]) -> Iterator[tuple[int, Data]]:
        for position, event in zip(self.positions, self.events, strict=True):
            if isinstance(event.data, kind):
                yield position, event.data

    def one(self, kind: type[Data]) -> Data:
        [(_, found)] = self.all(kind)
        return found

    @property
    def ended_at(self) -> int:
        return self.positions[-1]


Family = dict[RunId, RunJournal]


def check_families(world: World, journals: Sequence[Sequence[Event]]) -> None:
    family = _family(world, journals)
    for run in family.values():
        check_started(run, family)
        check_reports(run, family)
        check_ended(run, family)
        check_rights(run, family)
        check_at_a_time(run)
        check_judged(run)
    check_trees(family)


def _family(world: World, journals: Sequence[Sequence[Event]]) -> Family:
    rows = world.disk.execute("SELECT id, run_id, parent_run_id FROM runs ORDER BY id").fetchall()
    family: Family = {}
    for (id_, run_id, parent), events in zip(rows, journals, strict=True):
        found = world.disk.execute("SELECT position FROM events WHERE run = ? ORDER BY sequence", (id_,))
        family[RunId(run_id)] = RunJournal(run_id, parent, events, [int(position) for (position,) in found])
    return family


def check_started(run: RunJournal, family: Family) -> None:
    """Check that each child run belongs to one call of its parent, and that every requested child run exists."""
    for _, spawn in run.all(AgentSpawn):
        child = family.get(spawn.run_id)
        if child is None or child.parent != run.run_id:
            raise Violation(f"{run.run_id}: {spawn.run_id} was started, and does not exist")
    lineage = run.one(RunQueued).lineage
    if (lineage is None or not lineage.above) != (run.parent is None):
        raise Violation(f"{run.run_id}: its parent is {run.parent}, its lineage {lineage}")
    if run.parent is None or lineage is None:
        return
    wanted = [spawn for _, spawn in family[run.parent].all(AgentSpawn) if spawn.run_id == run.run_id]
    if len(wanted) != 1 or wanted[0].call_id != lineage.call_id:
        raise Violation(f"{run.run_id} was requested {len(wanted)} times by {run.parent}: {wanted}")


def check_reports(run: RunJournal, family: Family) -> None:
    """Check that a parent learns of each end once and correctly, unless the parent ended first."""
    heard: defaultdict[RunId, list[AgentEnd]] = defaultdict(list)
    for _, end in run.all(AgentEnd):
        heard[end.run_id].append(end)
    for _, spawn in run.all(AgentSpawn):
        child = family[spawn.run_id]
        times = 1 if child.ended_at < run.ended_at else 0
        if len(heard[spawn.run_id]) != times:
            raise Violation(f"{run.run_id} learned {len(heard[spawn.run_id])} times that {spawn.run_id} ended")
        end = child.one(RunEnd)
        for told in heard[spawn.run_id]:
            if (told.outcome, told.text, told.metrics) != (end.outcome, end.text, end.metrics):
                raise Violation(f"{run.run_id} received {told}, and {child.run_id} ended {end}")


def check_ended(run: RunJournal, family: Family) -> None:
    """Check that no child run is left behind: one that had not ended was told to stop, and stopped in time."""
    told = {call: at for at, each in run.all(AgentTold) if each.what == "cancel" for call in each.call_ids}
    for _, spawn in run.all(AgentSpawn):
        child, at = family[spawn.run_id], told.get(spawn.call_id)
        outcome = child.one(RunEnd).outcome
        if child.ended_at > run.ended_at and at is None:
            raise Violation(f"{child.run_id} was left behind by {run.run_id}, which never cancelled it")
        if at is not None and child.ended_at > at and outcome != "cancelled":
            raise Violation(f"{child.run_id} was told to stop and ended {outcome}")
        if not (at is None or child.ended_at < at or list(child.all(CancelRequested))):
            raise Violation(f"{child.run_id} never received the cancellation")
        late = child.events[-1].timestamp - run.events[-1].timestamp
        if late > GRACE_SECONDS + SLACK:
            raise Violation(f"{child.run_id} ended {late:.0f} s after {run.run_id}, which it stands under")


def check_rights(run: RunJournal, family: Family) -> None:
    """Check that a child run has no tool that its parent lacks, and that no run is deeper than its ancestors
    allow."""
    lineage, starts = run.one(RunQueued).lineage, [start for _, start in run.all(RunStart)]
    if run.parent is None or lineage is None or not starts:
        return
    mine = {tool.name for tool in starts[0].tools}
    theirs = {tool.name for tool in family[run.parent].one(RunStart).tools}
    if not mine <= (set[str]() if lineage.judges else theirs):
        raise Violation(f"{run.run_id} has {mine - theirs}, which {run.parent} has not")
    for above in _list_ancestors(run, family):
        depth = above.one(RunQueued).agent.limits.max_depth
        if _generations(run, above, family) > depth and not lineage.judges:
            raise Violation(f"{run.run_id} is more than {depth} levels under {above.run_id}")


def _list_ancestors(run: RunJournal, family: Family) -> Iterator[RunJournal]:
    while run.parent is not None:
        run = family[run.parent]
        yield run


def _generations(run: RunJournal, above: RunJournal, family: Family) -> int:
    return [each.run_id for each in _list_ancestors(run, family)].index(above.run_id) + 1


def check_at_a_time(run: RunJournal) -> None:
    """Check that a run never has more concurrent child runs than its limits allow."""
    running: set[RunId] = set()
    most = run.one(RunQueued).agent.limits.max_children
    for event in run.events:
        match event.data:
            case AgentSpawn(run_id=run_id, role=role) if role not in EVALUATOR_ROLES:
                running.add(run_id)
            case AgentEnd(run_id=run_id):
                running.discard(run_id)
            case _:
                pass
        if len(running) > most:
            raise Violation(f"{run.run_id} has {len(running)} children at a time, and may have {most}")


def check_judged(run: RunJournal) -> None:
    """Check that a judge cannot fail a run: the run ends as it would have, unless it was cancelled or got more
    messages."""
    end = run.one(RunEnd)
    for at, spawn in run.all(AgentSpawn):
        more = any(position > at for position, _ in run.all(MessageSteered))
        if spawn.end is None or more or end.outcome == "cancelled":
            continue
        if spawn.role == "quality" and end.status != "completed" and end.outcome != spawn.end.kind:
            raise Violation(f"{run.run_id} had come to {spawn.end}, was judged, and ended {end}")
        if spawn.role == "errors" and end.outcome != spawn.end.kind:
            raise Violation(f"{run.run_id} had come to {spawn.end}, and ended {end}")
        if end.text == "" != spawn.end.text:
            raise Violation(f"{run.run_id} had {spawn.end.text!r}, was judged, and ended with nothing")
    judged = [*run.all(QualityScored), *run.all(ErrorAnalyzed)]
    asked = [spawn for _, spawn in run.all(AgentSpawn) if spawn.role in EVALUATOR_ROLES]
    if end.outcome != "cancelled" and len(judged) < len(asked):
        raise Violation(f"{run.run_id}: {len(asked)} judges were requested, {len(judged)} verdicts are recorded")


# ── Trees ──────────────────────────────────────────────────────────────────────────────────────────


def check_trees(family: Family) -> None:
    """Check that a run and all its descendants never use more runs, steps or dollars than allowed."""
    for top in family.values():
        agent = top.one(RunQueued).agent
        members = [run for run in family.values() if run is top or top in _list_ancestors(run, family)]
        begun = [spawn for run in members for _, spawn in run.all(AgentSpawn) if spawn.role not in EVALUATOR_ROLES]
        if len(begun) > agent.limits.max_tree:
            raise Violation(f"{top.run_id} has {len(begun)} runs under it, and may have {agent.limits.max_tree}")
        steps = sum(len(list(run.all(StepStart))) for run in members)
        if agent.budget == "shared" and steps > (agent.limits.max_steps or steps):
            raise Violation(f"{top.run_id}: {steps} steps were taken of {agent.limits.max_steps}")
        if agent.limits.cost is not None:
            check_ceiling(f"tree/{top.run_id}", agent.limits.cost, members)


def check_ceiling(account: str, ceiling: float, members: Sequence[RunJournal]) -> None:
    """Check that the amounts spent and reserved never exceed the ceiling together, at any commit."""
    happened = sorted(
        [
            (at, run.run_id, event.data)
            for run in members
            for at, event in zip(run.positions, run.events, strict=True)
        ],
        key=lambda each: each[0],
    )
    spent, reserved = 0.0, dict[RunId, float]()
    for _, run_id, data in happened:
        match data:
            case BudgetReserved(accounts=accounts, cost=cost) if account in accounts:
                spent += reserved.pop(run_id, 0.0)  # of a lost call
                reserved[run_id] = cost
            case (
                LlmResponse(cost=cost)
                | LlmError(cost=cost)
                | ContextCompacted(cost=cost)
                | CompactionFailed(cost=cost)
            ) if run_id in reserved:
                reserved.pop(run_id)
                spent += cost or 0.0
            case _:
                pass
        if spent + sum(reserved.values()) > ceiling * (1 + 1e-9):
            raise Violation(f"{account}: {spent} are spent and {sum(reserved.values())} reserved, of {ceiling}")
