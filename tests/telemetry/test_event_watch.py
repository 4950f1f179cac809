"""Watchers see the events of each run from the beginning and in order."""

import asyncio
import logging
from collections.abc import Sequence

import pytest

from treadle.domain.agents import AgentSpec
from treadle.domain.envelope import Draft, Event, Origin, make_drafts
from treadle.domain.events import EventData, ResumeRequested, RunEnd, RunQueued, StepStart
from treadle.domain.ids import AgentId, RunId, SessionId
from treadle.domain.runs import Metrics
from treadle.system.clock import TimeOrderedIds
from treadle.telemetry.event_watch import Watch

ORIGIN = Origin(RunId("run_1"), SessionId("ses_1"), AgentId("agt_1"))
QUEUED = RunQueued(AgentSpec("a", "p/m"))
END = RunEnd("completed", "completed", Metrics())
ids = TimeOrderedIds()


class Notebook:
    def __init__(self) -> None:
        self.lines: list[str] = []

    def remember(self, event: Event) -> None:
        self.lines.append(f"({event.sequence} {event.type})")

    def observe(self, origin: Origin, first: int, drafts: Sequence[Draft]) -> None:
        self.lines += [f"{sequence} {draft.type}" for sequence, draft in enumerate(drafts, first)]

    def forget(self, run_id: RunId) -> None:
        self.lines.append(f"{run_id} is left to others")


class BrokenWatcher:
    def remember(self, event: Event) -> None:
        raise RuntimeError("it never worked")

    def observe(self, origin: Origin, first: int, drafts: Sequence[Draft]) -> None:
        raise RuntimeError("it never worked")

    def forget(self, run_id: RunId) -> None:
        raise RuntimeError("it never worked")


class PagedJournal:
    """A journal, in pages of two."""

    def __init__(self, *events: EventData) -> None:
        made = make_drafts(ids, 1.0, events)
        self.events = [
            Event(
                event_id=one.event_id,
                timestamp=1.0,
                origin=ORIGIN,
                sequence=number,
                type=one.type,
                data=one.data,
                raw=one.raw,
            )
            for number, one in enumerate(made, 1)
        ]
        self.reads = 0
        self.open = asyncio.Event()

    async def read(self, run_id: RunId, after: int) -> Sequence[Event]:
        self.reads += 1
        await self.open.wait()
        return self.events[after : after + 2]


def make_committed(*events: EventData) -> list[Draft]:
    return make_drafts(ids, 2.0, events)


async def test_earlier_events_of_a_run_are_read_before_new_ones() -> None:
    notebook, kept = Notebook(), PagedJournal(QUEUED, StepStart(1), ResumeRequested(), StepStart(2), END)
    watch = Watch([notebook], kept.read)
    watch(ORIGIN, 4, make_committed(StepStart(2)))
    await asyncio.sleep(0)
    watch(ORIGIN, 5, make_committed(END))
    assert notebook.lines == []
    kept.open.set()
    await watch.close()
    assert notebook.lines == [
        "(1 run_queued)", "(2 step_start)", "(3 resume_requested)", "4 step_start", "5 run_end"
    ]  # fmt: skip
    assert kept.reads == 2, "no more than is needed, and once"


async def test_a_run_that_is_resumed_here_is_not_read_again() -> None:
    notebook, kept = Notebook(), PagedJournal(QUEUED, StepStart(1))
    watch = Watch([notebook], kept.read)
    watch.take(kept.events)
    watch.take(kept.events)
    watch(ORIGIN, 3, make_committed(END))
    await watch.close()
    assert notebook.lines == ["(1 run_queued)", "(2 step_start)", "3 run_end"]
    assert kept.reads == 0


async def test_a_run_that_is_being_read_is_reported_once() -> None:
    notebook, kept = Notebook(), PagedJournal(QUEUED, StepStart(1), ResumeRequested())
    watch = Watch([notebook], kept.read)
    watch(ORIGIN, 3, make_committed(ResumeRequested()))
    watch.take(kept.events)
    kept.open.set()
    await watch.close()
    assert notebook.lines == ["(1 run_queued)", "(2 step_start)", "3 resume_requested"]


async def test_the_journal_of_a_run_that_starts_here_is_not_read() -> None:
    notebook, kept = Notebook(), PagedJournal()
    watch = Watch([notebook], kept.read)
    watch(ORIGIN, 1, make_committed(QUEUED))
    watch(ORIGIN, 2, make_committed(StepStart(1), END))
    assert notebook.lines == ["1 run_queued", "2 step_start", "3 run_end"]
    assert kept.reads == 0


async def test_a_run_of_another_process_is_forgotten_until_it_returns() -> None:
    notebook, kept = Notebook(), PagedJournal(QUEUED, StepStart(1), StepStart(2), END)
    kept.open.set()
    watch = Watch([notebook], kept.read)
    watch(ORIGIN, 1, make_committed(QUEUED))
    watch.forget(ORIGIN.run_id)
    watch.forget(ORIGIN.run_id)
    watch(ORIGIN, 3, make_committed(StepStart(2)))
    watch.forget(ORIGIN.run_id)  # while its beginning is being read
    await watch.close()
    left = "run_1 is left to others"
    back = ["(1 run_queued)", "(2 step_start)", "3 step_start"]
    assert notebook.lines == ["1 run_queued", left, *back, left]


def test_a_failing_watcher_does_not_affect_the_others(caplog: pytest.LogCaptureFixture) -> None:
    notebook = Notebook()
    watch = Watch([BrokenWatcher(), notebook], PagedJournal().read)
    watch(ORIGIN, 1, make_committed(QUEUED))
    assert notebook.lines == ["1 run_queued"]
    assert "BrokenWatcher failed on events of run_1" in caplog.text


async def test_an_unreadable_journal_is_reported_and_new_events_are_shown(caplog: pytest.LogCaptureFixture) -> None:
    async def unreadable(run_id: RunId, after: int) -> Sequence[Event]:
        raise OSError("the disk is gone")

    async def scenario() -> None:
        notebook = Notebook()
        watch = Watch([notebook], unreadable)
        watch(ORIGIN, 4, make_committed(END))
        await watch.close()
        assert notebook.lines == ["4 run_end"]

    with caplog.at_level(logging.ERROR):
        await scenario()
    assert "the beginning of run_1 could not be read" in caplog.text
