"""`treadle schedules`: messages that are sent to agents at set times."""

import heapq
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Annotated

from treadle.bootstrap.callers import open_persistent_readonly_caller
from treadle.domain.errors import UnknownSession, UsageError
from treadle.domain.ids import Instant
from treadle.domain.schedules import Timing
from treadle.operations import schedules
from treadle.operations.automation import NewSchedule, ScheduleView
from treadle.operations.operation import Caller, NoParameters
from treadle.surfaces.cli import completion
from treadle.surfaces.cli.admin_references import find_schedule
from treadle.surfaces.cli.command_line import Argument, Group, Option
from treadle.surfaces.cli.shared_options import AgentOption, Json
from treadle.surfaces.home_access.connection import current_home, open_admin_caller
from treadle.surfaces.home_access.references import find_session
from treadle.surfaces.terminal.output import Column, local_time, note, print_list, print_result, short_id, when

ScheduleArgument = Annotated[
    str,
    Argument(metavar="SCHEDULE", help="The id of the schedule, sch_…, a unique beginning of it, or `last`."),
]
group = Group("schedules")


@group.command("list")
async def list_schedules(json: Json = False) -> int:
    """List schedules and the heartbeats of agents."""
    async with open_persistent_readonly_caller(current_home()) as caller:
        views = (await caller.call(schedules.LIST, NoParameters())).items
    head = (
        *("SCHEDULE", Column("AGENT", shrinks_to=8), "EVERY", "NEXT"),
        *(Column("LATEST RUN", is_optional=True), Column("MESSAGE", shrinks_to=24)),
    )
    empty = 'No schedules yet. Create one: treadle schedules add 15m "MESSAGE" --agent NAME'
    print_list(views, head, _row, json=json, empty=empty)
    for view in views:
        if view.problem and not json:
            note(f"{view.schedule_id}: {view.problem}")
    return 0


@group.command("add")
async def add_schedule(
    every: Annotated[
        str,
        Argument(
            metavar="EVERY",
            help='A duration such as 30s, 15m or 2h, or a cron expression such as "0 9 * * 1-5".',
        ),
    ],
    message: Annotated[str, Argument(metavar="MESSAGE", help="The message.")],
    agent: AgentOption = "default",
    zone: Annotated[str, Option(metavar="ZONE", help="The time zone of a cron expression.")] = "UTC",
    session: Annotated[
        str | None,
        Option(
            metavar="SESSION",
            help="Continue this session: its id, a beginning of it, its title, or `last`. Another name starts a "
            "session with that id. Default: each run starts its own session.",
            suggest=completion.session_ids,
        ),
    ] = None,
    deliver: Annotated[
        str, Option(metavar="CHANNEL:NAME", help="Send the answers to this recipient of a channel.")
    ] = "",
    json: Json = False,
) -> int:
    """Send a message to an agent at set times, while `treadle serve` runs.

    Ticks that are missed while it does not run start one run when it runs again."""
    if every.strip().replace(".", "", 1).isdigit():
        raise UsageError(
            f"`{every}` has no unit: write {every}s for seconds, {every}m for minutes or {every}h for hours."
        )
    async with open_admin_caller(current_home()) as caller:
        session_id = None if session is None else await _find_or_name_session(caller, session)
        new = NewSchedule(
            agent=agent, message=message, every=every, zone=zone, session_id=session_id, deliver=deliver
        )
        view = await caller.call(schedules.CREATE, new)
    print_result(view, f"{view.schedule_id} fires {_next(view)}, while `treadle serve` runs.", json=json)
    return 0


@group.command("remove")
async def remove_schedule(schedule: ScheduleArgument, json: Json = False) -> int:
    """Remove a schedule. Runs that it has started continue."""
    async with open_admin_caller(current_home()) as caller:
        schedule_id = await find_schedule(caller, schedule)
        await caller.call(schedules.REMOVE, schedules.OneSchedule(schedule_id))
    print_result({"schedule_id": schedule_id, "removed": True}, f"Removed {schedule_id}.", json=json)
    return 0


@group.command("pause")
async def pause_schedule(schedule: ScheduleArgument, json: Json = False) -> int:
    """Pause a schedule."""
    async with open_admin_caller(current_home()) as caller:
        schedule_id = await find_schedule(caller, schedule)
        view = await caller.call(schedules.PAUSE, schedules.OneSchedule(schedule_id))
    print_result(view, f"Paused {schedule_id}. Resume it: treadle schedules resume {schedule_id}", json=json)
    return 0


@group.command("resume")
async def resume_schedule(schedule: ScheduleArgument, json: Json = False) -> int:
    """Resume a schedule from its next tick."""
    async with open_admin_caller(current_home()) as caller:
        schedule_id = await find_schedule(caller, schedule)
        view = await caller.call(schedules.RESUME, schedules.OneSchedule(schedule_id))
    print_result(view, f"{schedule_id} fires {_next(view)}.", json=json)
    return 0


@group.command("next")
async def show_next(
    count: Annotated[int, Option("-n", "--count", min=1, max=1000, help="Maximum number of rows.")] = 10,
    json: Json = False,
) -> int:
    """Show the next ticks of all schedules that are not paused."""
    async with open_persistent_readonly_caller(current_home()) as caller:
        found = await caller.call(schedules.LIST, NoParameters())
        views = [view for view in found.items if not view.paused]
    coming = heapq.merge(*(_ticks(view, count) for view in views), key=lambda tick: tick[0])
    ticks = [tick for tick, _ in zip(coming, range(count), strict=False)]
    if json:
        for at, view in ticks:
            print_result({"at": _moment(at).astimezone(), "schedule_id": view.schedule_id}, "", json=True)
        return 0
    print_list(
        ticks,
        ("WHEN", "SCHEDULE", Column("AGENT", shrinks_to=8), Column("MESSAGE", shrinks_to=14)),
        lambda tick: (local_time(_moment(tick[0])), short_id(tick[1].schedule_id), tick[1].agent, tick[1].message),
        json=False,
        empty="No schedule fires: there are none, or all are paused. See: treadle schedules list",
    )
    return 0


async def _find_or_name_session(caller: Caller, wanted: str) -> str:
    """Return the id of an existing session, or the name as the id of a new one."""
    try:
        return await find_session(caller, wanted, whole_title=True)
    except UnknownSession:
        return wanted


def _ticks(view: ScheduleView, count: int) -> Iterator[tuple[Instant, ScheduleView]]:
    timing = Timing(view.every, view.zone, view.anchor.timestamp())
    tick = None if view.next_at is None else view.next_at.timestamp()
    for _ in range(count):
        if tick is None:
            return
        yield tick, view
        tick = timing.after(tick)


def _row(view: ScheduleView) -> tuple[str, ...]:
    every = f"{view.every:g} s" if isinstance(view.every, float) else view.every
    zone = f" {view.zone}" if view.zone != "UTC" else ""
    following = "paused" if view.paused else when(view.next_at)
    latest = short_id(view.run_id) if view.run_id else ""
    return short_id(view.schedule_id), view.agent, f"{every}{zone}", following, latest, view.message


def _next(view: ScheduleView) -> str:
    return "never" if view.next_at is None else f"next at {local_time(view.next_at)}"


def _moment(at: Instant) -> datetime:
    return datetime.fromtimestamp(at, UTC)
