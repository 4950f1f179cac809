"""The checks at the end of `python -m bench.chaos` find the faults that they are for."""

import logging
from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest
from bench.chaos.checks import JournalEvent, Observations, judge
from bench.chaos.clients import ReceivedEvents
from bench.chaos.cluster import ProcessHit, find_unexpected_errors

from treadle.engine.null_ports import NoVault
from treadle.telemetry.logs import JsonLogFormatter, RunLog

RUN, CALL = "run_1", "call_1"
Change = Callable[[Observations], Any]


def row(outcome: str | None = "completed", parent: str | None = None) -> dict[str, str | None]:
    return {"session_id": "ses_2" if parent else "ses_1", "parent_run_id": parent, "outcome": outcome}


def journal() -> list[JournalEvent]:
    """Return a run that lost its worker during a call and then made another call."""
    call = {"call_id": CALL, "name": "effect"}
    second = {"call_id": "call_2", "name": "effect"}
    events: tuple[tuple[float, str, dict[str, Any]], ...] = (
        (1.0, "tool_call_start", call),
        (14.0, "run_recovered", {"epoch": 2}),
        (14.1, "tool_call_error", {**call, "kind": "interrupted", "content": "unknown"}),
        (14.2, "tool_call_end", second),
        (14.3, "approval_decided", {"approval_id": "apr_1"}),
        (15.0, "run_end", {}),
    )
    return [JournalEvent(RUN, number, *event) for number, event in enumerate(events, 1)]


def make_valid_observations() -> Observations:
    return Observations(
        runs={RUN: row(), "run_2": row(parent=RUN)},
        events={RUN: journal(), "run_2": []},
        lines=Counter([(RUN, "call_2")]),
        blows=[ProcessHit(2.0, "worker-0", {RUN: 1})],
        acknowledged={"key": RUN},
        seen={RUN: ReceivedEvents(last=6, outcome="completed")},
        of_feed={RUN: ReceivedEvents(last=6)},
        changes=[(0.0, True), (3.0, False), (3.5, True)],
    )


FAULTS: list[tuple[str, Change]] = [
    ("acknowledged and lost", lambda found: found.acknowledged.update(other="run_3")),
    (
        "runs that were never acknowledged",
        lambda found: found.runs.update(run_3=row()) or found.events.update(run_3=[]),
    ),
    ("not ended", lambda found: found.runs.update({RUN: row(None)})),
    ("ended otherwise than completed", lambda found: found.runs.update({RUN: row("failed")})),
    ("quarantined", lambda found: found.events[RUN].append(JournalEvent(RUN, 7, 15.0, "run_quarantined", {}))),
    ("journals with a gap", lambda found: found.events[RUN].pop(4)),
    (
        "runs that did not wait for the previous one of their session",
        lambda found: (
            found.events["run_2"].append(JournalEvent("run_2", 1, 14.9, "run_start", {}))
            or found.runs.update(run_2=row())
        ),
    ),
    ("approvals decided twice", lambda found: found.events[RUN].append(found.events[RUN][4])),
    ("effects twice", lambda found: found.lines.update([(RUN, "call_2")])),
    ("results without their effect", lambda found: found.lines.clear()),
    ("outcome unknown without a blow", lambda found: setattr(found.blows[0], "at", 0.5)),
    ("calls that failed otherwise", lambda found: found.events[RUN][2].data.update(kind="failed")),
    ("readers: gaps and events twice", lambda found: found.seen[RUN].faults.append("a gap")),
    ("readers with missing events", lambda found: setattr(found.seen[RUN], "last", 5)),
    ("the feed: gaps and events twice", lambda found: found.of_feed[RUN].faults.append("a gap")),
    ("the feed: runs with missing events", lambda found: found.of_feed.clear()),
    ("of these, never taken over", lambda found: found.events[RUN][1].data.update(epoch=3)),
    ("taken over without a fault", lambda found: found.blows[0].held.clear()),
    ("of these, with worker and database there", lambda found: setattr(found.blows[0], "at", -2.0)),
]


def test_a_valid_journal_has_no_faults() -> None:
    verdict = judge(make_valid_observations())
    assert verdict.met
    assert verdict.faults == []


@pytest.mark.parametrize(("fault", "change"), FAULTS)
def test_each_fault_is_found(fault: str, change: Change) -> None:
    found = make_valid_observations()
    change(found)
    verdict = judge(found)
    assert not verdict.met
    assert any(said.startswith(f"{fault}: ") for said in verdict.faults), verdict.faults


def test_a_reader_reports_duplicate_and_missing_events() -> None:
    seen = ReceivedEvents()
    for sequence in (1, 2, 2, 4):
        seen.show({"run_id": RUN, "sequence": sequence, "type": "token"})
    assert [fault.partition(": ")[2] for fault in seen.faults] == ["event 2 came after 2", "event 4 came after 2"]


def test_time_without_a_worker_that_could_take_over_does_not_count() -> None:
    found = make_valid_observations()
    assert found.seconds_with_a_worker(2.0, 14.0) == 11.5
    assert found.seconds_with_a_worker(3.1, 3.4) == 0.0
    assert found.seconds_with_a_worker(3.2, 4.5) == 1.0


def format_log_line(error: Exception | None, message: str = "a request failed") -> str:
    exc_info = None if error is None else (type(error), error, error.__traceback__)
    record = logging.LogRecord("treadle", logging.ERROR, "", 1, message, (), exc_info)
    return JsonLogFormatter(NoVault(), RunLog()).format(record)


def test_an_error_that_was_logged_with_its_traceback_is_found() -> None:
    planted = format_log_line(ZeroDivisionError("planted"))
    tried_again = format_log_line(ConnectionError("closed"), "Flush failed, requeuing 2 items")
    assert find_unexpected_errors([format_log_line(None), tried_again, planted, "stopping: what is under way"]) == [
        "a request failed: ZeroDivisionError: planted"
    ]
    fatal = "treadle: something failed that should not: KeyError: 'x'. Set TREADLE_DEBUG=1 to see where"
    assert find_unexpected_errors([fatal, planted[:40], "{}", "5"]) == [fatal]
