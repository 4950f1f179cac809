"""The final checks: the whole journal, the external effects, and what clients received."""

import json
import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from bench.chaos.clients import Clients, ReceivedEvents
from bench.chaos.cluster import Cluster, ProcessHit
from bench.chaos.model import EFFECT_TOOLS, read_effects

MAX_TAKEOVER_SECONDS = 15.0
ALL_RUNS = """
SELECT run_id, session_id, parent_run_id, status, outcome, worker, lease_until, wake_at, waiting_for
FROM runs ORDER BY id
"""
ALL_EVENTS = """
SELECT r.run_id, e.sequence, e.timestamp, e.type, e.data FROM events AS e JOIN runs AS r ON r.id = e.run
ORDER BY r.id, e.sequence
"""
MAX_SHOWN = 5
"""How many faults of each kind are shown."""


class JournalEvent(NamedTuple):
    """One event of the journal."""

    run_id: str
    sequence: int
    at: float
    type: str
    data: Any


@dataclass(slots=True)
class Observations:
    """Everything that is checked."""

    runs: dict[str, Any]
    events: dict[str, list[JournalEvent]]
    lines: Counter[tuple[str, str]]
    blows: Sequence[ProcessHit]
    acknowledged: dict[str, str]
    seen: dict[str, ReceivedEvents]
    of_feed: dict[str, ReceivedEvents]
    changes: Sequence[tuple[float, bool]]
    """Whether any worker could take over a run, from each of these times on."""

    def seconds_with_a_worker(self, begin: float, end: float) -> float:
        """Return the seconds between the two in which a worker could have taken over."""
        seconds, known = 0.0, (begin, True)
        for at, there in [*sorted(change for change in self.changes if change[0] < end), (end, False)]:
            seconds += max(0.0, at - max(begin, known[0])) if known[1] else 0.0
            known = (at, there)
        return seconds

    def of_type(self, kind: str) -> Iterable[JournalEvent]:
        return (event for events in self.events.values() for event in events if event.type == kind)


@dataclass(slots=True)
class ChaosVerdict:
    """The table of results. Every fault is listed."""

    rows: list[tuple[str, str, bool]] = field(default_factory=list[tuple[str, str, bool]])
    faults: list[str] = field(default_factory=list[str])

    @property
    def met(self) -> bool:
        return all(row[2] for row in self.rows)

    def note(self, what: str, value: object) -> None:
        """Add a value for information only."""
        self.rows.append((what, str(value), True))

    def none(self, what: str, faults: Sequence[str]) -> None:
        """Add a check that there are no faults of this kind."""
        self.rows.append((what, str(len(faults)), not faults))
        self.faults += [f"{what}: {fault}" for fault in faults[:MAX_SHOWN]]

    def at_most(self, what: str, value: float, bar: float) -> None:
        self._compared(what, f"{value:.1f} (bar: {bar:.0f})", value <= bar)

    def at_least(self, what: str, value: int, bar: int) -> None:
        self._compared(what, f"{value} (bar: {bar})", value >= bar)

    def _compared(self, what: str, value: str, held: bool) -> None:
        self.rows.append((what, value, held))
        self.faults += [] if held else [f"{what}: {value}"]


async def gather(cluster: Cluster, clients: Clients, folder: Path) -> Observations:
    await cluster.looked()
    runs = {row["run_id"]: row for row in await cluster.ask(ALL_RUNS)}
    events: defaultdict[str, list[JournalEvent]] = defaultdict(list)
    for run_id, sequence, at, kind, data in await cluster.ask(ALL_EVENTS):
        events[run_id].append(JournalEvent(run_id, sequence, at, kind, json.loads(data)))
    told = (clients.acknowledged, clients.seen, clients.of_feed)
    return Observations(runs, dict(events), Counter(read_effects(folder)), cluster.blows, *told, cluster.changes)


def judge(found: Observations) -> ChaosVerdict:
    verdict = ChaosVerdict()
    verdict.note("runs acknowledged", len(found.acknowledged))
    verdict.note("runs in the database, with children", len(found.runs))
    _check_runs(found, verdict)
    _check_effects(found, verdict)
    _check_readers(found, verdict)
    _check_takeovers(found, verdict)
    return verdict


def _check_runs(found: Observations, verdict: ChaosVerdict) -> None:
    lost = [f"{run_id} (key {key})" for key, run_id in found.acknowledged.items() if run_id not in found.runs]
    verdict.none("acknowledged and lost", lost)
    roots = [run_id for run_id, row in found.runs.items() if row["parent_run_id"] is None]
    verdict.none("runs that were never acknowledged", sorted(set(roots) - set(found.acknowledged.values())))
    unfinished = [str(dict(row)) for row in found.runs.values() if row["outcome"] is None]
    verdict.none("not ended", unfinished)
    others = [
        f"{run_id}: {row['outcome']}"
        for run_id, row in found.runs.items()
        if row["outcome"] not in (None, "completed")
    ]
    verdict.none("ended otherwise than completed", others)
    verdict.none("quarantined", [event.run_id for event in found.of_type("run_quarantined")])
    gaps = [
        run_id
        for run_id, events in found.events.items()
        if [event.sequence for event in events] != list(range(1, len(events) + 1))
    ]
    verdict.none("journals with a gap", gaps)
    verdict.none("runs that did not wait for the previous one of their session", _find_overlaps(found))
    decided = Counter(event.data["approval_id"] for event in found.of_type("approval_decided"))
    verdict.note("approvals decided", len(decided))
    verdict.none("approvals decided twice", [approval for approval, times in decided.items() if times > 1])


def _find_overlaps(found: Observations) -> list[str]:
    last: dict[str, float] = {}
    early = list[str]()
    for run_id, row in found.runs.items():
        times = {event.type: event.at for event in found.events[run_id]}
        if times.get("run_start", math.inf) < last.get(row["session_id"], 0.0):
            early.append(run_id)
        last[row["session_id"]] = times.get("run_end", math.inf)
    return early


def _check_effects(found: Observations, verdict: ChaosVerdict) -> None:
    verdict.note("effects", found.lines.total())
    verdict.none("effects twice", [f"{run} {call}" for (run, call), times in found.lines.items() if times > 1])
    said = [
        event
        for event in found.of_type("tool_call_end")
        if event.data["name"] in EFFECT_TOOLS and not found.lines[event.run_id, event.data["call_id"]]
    ]
    verdict.none("results without their effect", [f"{event.run_id} {event.data['call_id']}" for event in said])
    errors = list(found.of_type("tool_call_error"))
    unknown = [event for event in errors if event.data["kind"] == "interrupted"]
    verdict.note("outcome unknown", len(unknown))
    verdict.none(
        "outcome unknown without a blow", [_describe_event(each) for each in unknown if not _was_hit(each, found)]
    )
    known = [_describe_event(event) for event in errors if event.data["kind"] != "interrupted"]
    verdict.none("calls that failed otherwise", known)


def _describe_event(event: JournalEvent) -> str:
    return f"{event.run_id} {event.data['call_id']} ({event.data['kind']}): {event.data['content'][:80]}"


def _was_hit(error: JournalEvent, found: Observations) -> bool:
    """Return whether the run was owned by a process that was killed or stopped after the call had started."""
    began = [
        event.at
        for event in found.events[error.run_id]
        if event.type == "tool_call_start" and event.data["call_id"] == error.data["call_id"]
    ]
    return bool(began) and any(
        error.run_id in blow.held and began[-1] <= blow.at <= error.at for blow in found.blows
    )


def _check_readers(found: Observations, verdict: ChaosVerdict) -> None:
    verdict.note("connections of readers", sum(seen.connections for seen in found.seen.values()))
    late = [seen.late for seen in found.seen.values() if seen.outcome is not None] or [0.0]
    verdict.note("readers: seconds to see the end, median", f"{statistics.median(late):.2f}")
    verdict.note("readers: seconds to see the end, longest", f"{max(late):.1f}")
    faults = [fault for seen in found.seen.values() for fault in seen.faults]
    verdict.none("readers: gaps and events twice", faults)
    short = [
        f"{run_id}: {seen.last} of {len(found.events.get(run_id, ()))}"
        for run_id, seen in found.seen.items()
        if seen.last != len(found.events.get(run_id, ()))
    ]
    verdict.none("readers with missing events", short)
    verdict.none("the feed: gaps and events twice", [f for seen in found.of_feed.values() for f in seen.faults])
    missing = [
        run_id
        for run_id, events in found.events.items()
        if found.of_feed.get(run_id, ReceivedEvents()).last != len(events)
    ]
    verdict.none("the feed: runs with missing events", missing)


def _check_takeovers(found: Observations, verdict: ChaosVerdict) -> None:
    """Check the time from each fault until another worker owned the run."""
    taken = {(event.run_id, event.data["epoch"]): event.at for event in found.of_type("run_recovered")}
    held = {(run_id, epoch): blow.at for blow in found.blows for run_id, epoch in blow.held.items()}
    seconds, free, never = list[float](), list[float](), list[str]()
    for blow in found.blows:
        for run_id, epoch in blow.held.items():
            # A worker that took over and was killed before its first event owned the run at that time too.
            at = taken.get((run_id, epoch + 1), held.get((run_id, epoch + 1)))
            if at is None:
                never.append(f"{run_id}, of {blow.name}, epoch {epoch}")
            else:
                seconds.append(at - blow.at)
                free.append(found.seconds_with_a_worker(blow.at, at))
    verdict.note("runs owned by killed or stopped processes", len(held))
    verdict.none("of these, never taken over", never)
    unexplained = [f"{run_id}, epoch {epoch}" for run_id, epoch in taken if (run_id, epoch - 1) not in held]
    verdict.none("taken over without a fault", unexplained)
    if seconds:
        verdict.note("takeover, median seconds", f"{statistics.median(seconds):.1f}")
        verdict.note("takeover, longest seconds", f"{max(seconds):.1f}")
        verdict.at_most("of these, with worker and database there", max(free), MAX_TAKEOVER_SECONDS)
