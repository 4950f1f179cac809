"""`treadle schedules`: messages that are sent to agents by themselves."""

import heapq
import os
import time
from collections.abc import Iterator
from datetime import datetime

from msgspec import Struct

from treadle.bootstrap.callers import open_persistent_readonly_caller
from treadle.config.home import Home
from treadle.domain.ids import Instant
from treadle.domain.schedules import ScheduleId, Timing
from treadle.operations import schedules
from treadle.operations.operation import NoParameters
from treadle.operations.schedules import NewSchedule, ScheduleView
from treadle.surfaces.cli.connection import administering
from treadle.surfaces.cli.event_output import note
from treadle.surfaces.cli.tables import print_table
from treadle.surfaces.cli.terminal import print_json

LONGEST_MESSAGE = 40


class Wanted(Struct, frozen=True):
    """What was asked for on the command line."""

    every: str
    message: str
    agent: str
    zone: str
    session: str | None


async def list_schedules(json: bool) -> int:
    async with open_persistent_readonly_caller(_home()) as caller:
        views = (await caller.call(schedules.LIST, NoParameters())).items
    if json:
        for view in views:
            print_json(view)
    elif views:
        head = ("SCHEDULE", "AGENT", "EVERY", "NEXT", "LATEST RUN", "MESSAGE")
        print_table(head, [_row(view) for view in views])
        for view in views:
            if view.problem:
                note(f"{view.schedule_id}: {view.problem}")
    else:
        note('no schedules yet; make one with: treadle schedules add 15m "MESSAGE" --agent NAME')
    return 0


async def add_schedule(wanted: Wanted, json: bool) -> int:
    new = NewSchedule(wanted.agent, wanted.message, _every(wanted.every), wanted.zone, wanted.session)
    async with administering(_home()) as caller:
        view = await caller.call(schedules.CREATE, new)
    return _told(view, f"{view.schedule_id} comes next {_when(view.next_at)}; `treadle serve` fires it", json)


async def remove_schedule(schedule_id: str, json: bool) -> int:
    async with administering(_home()) as caller:
        await caller.call(schedules.REMOVE, schedules.OneSchedule(ScheduleId(schedule_id)))
    if json:
        print_json({"schedule_id": schedule_id, "removed": True})
    else:
        note(f"{schedule_id} is removed")
    return 0


async def pause_schedule(schedule_id: str, json: bool) -> int:
    async with administering(_home()) as caller:
        view = await caller.call(schedules.PAUSE, schedules.OneSchedule(ScheduleId(schedule_id)))
    return _told(view, f"{schedule_id} is paused; go on with: treadle schedules resume {schedule_id}", json)


async def resume_schedule(schedule_id: str, json: bool) -> int:
    async with administering(_home()) as caller:
        view = await caller.call(schedules.RESUME, schedules.OneSchedule(ScheduleId(schedule_id)))
    return _told(view, f"{schedule_id} comes next {_when(view.next_at)}", json)


async def show_next(count: int, json: bool) -> int:
    async with open_persistent_readonly_caller(_home()) as caller:
        found = await caller.call(schedules.LIST, NoParameters())
        views = [view for view in found.items if not view.paused]
    coming = heapq.merge(*(_ticks(view, count) for view in views), key=lambda tick: tick[0])
    ticks = [tick for tick, _ in zip(coming, range(count), strict=False)]
    if json:
        for at, view in ticks:
            print_json({"at": datetime.fromtimestamp(at).astimezone(), "schedule_id": view.schedule_id})
    elif ticks:
        rows = [(_date(at), view.schedule_id, view.agent, _short(view.message)) for at, view in ticks]
        print_table(("WHEN", "SCHEDULE", "AGENT", "MESSAGE"), rows)
    else:
        note("nothing is going to happen by itself; see: treadle schedules list")
    return 0


def _every(given: str) -> float | str:
    """Seconds where it is a number."""
    try:
        return float(given)
    except ValueError:
        return given


def _ticks(view: ScheduleView, count: int) -> Iterator[tuple[Instant, ScheduleView]]:
    timing = Timing(view.every, view.zone, view.anchor.timestamp())
    tick = None if view.next_at is None else view.next_at.timestamp()
    for _ in range(count):
        if tick is None:
            return
        yield tick, view
        tick = timing.after(tick)


def _told(view: ScheduleView, words: str, json: bool) -> int:
    if json:
        print_json(view)
    else:
        note(words)
    return 0


def _row(view: ScheduleView) -> tuple[str, ...]:
    every = f"{view.every:g} s" if isinstance(view.every, float) else view.every
    zone = f" {view.zone}" if view.zone != "UTC" else ""
    following = "paused" if view.paused else _when(view.next_at)
    return view.schedule_id, view.agent, f"{every}{zone}", following, view.run_id or "", _short(view.message)


def _short(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= LONGEST_MESSAGE else f"{line[: LONGEST_MESSAGE - 1]}…"


def _when(at: datetime | None) -> str:
    return "never" if at is None else _date(at.timestamp())


def _date(at: Instant) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at))


def _home() -> Home:
    return Home.from_environment(os.environ)
