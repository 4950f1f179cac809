"""The commands `treadle schedules`."""

from functools import partial
from typing import Annotated

from treadle.surfaces.cli import completion
from treadle.surfaces.cli.command_line import Argument, Group, Option

schedules_app = Group("schedules")

Json = Annotated[bool, Option("--json", help="Print JSON, one value per line.")]
ScheduleArgument = Annotated[str, Argument(metavar="SCHEDULE", help="The id of the schedule.")]


@schedules_app.command("list")
def list_schedules(json: Json = False) -> None:
    """List schedules and the heartbeats of agents."""
    from treadle.surfaces.cli import process, schedules

    process.perform(partial(schedules.list_schedules, json))


@schedules_app.command("add")
def add_schedule(
    every: Annotated[
        str,
        Argument(
            metavar="EVERY", help='Seconds, a duration such as 15m, or a cron expression such as "0 9 * * 1-5".'
        ),
    ],
    message: Annotated[str, Argument(metavar="MESSAGE", help="The message.")],
    agent: Annotated[
        str,
        Option("-a", "--agent", metavar="NAME", help="The agent.", suggest=completion.agent_names),
    ] = "default",
    zone: Annotated[str, Option(metavar="ZONE", help="The time zone of a cron expression.")] = "UTC",
    session: Annotated[
        str | None,
        Option(
            metavar="SESSION",
            help="Continue this session. Default: each run starts its own session.",
            suggest=completion.session_ids,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Send a message to an agent at set times, while `treadle serve` runs.

    Ticks that are missed while it does not run start one run when it runs again."""
    from treadle.surfaces.cli import process, schedules

    wanted = schedules.Wanted(every, message, agent, zone, session)
    process.perform(partial(schedules.add_schedule, wanted, json))


@schedules_app.command("remove")
def remove_schedule(schedule_id: ScheduleArgument, json: Json = False) -> None:
    """Remove a schedule. Runs that it has started continue."""
    from treadle.surfaces.cli import process, schedules

    process.perform(partial(schedules.remove_schedule, schedule_id, json))


@schedules_app.command("pause")
def pause_schedule(schedule_id: ScheduleArgument, json: Json = False) -> None:
    """Pause a schedule."""
    from treadle.surfaces.cli import process, schedules

    process.perform(partial(schedules.pause_schedule, schedule_id, json))


@schedules_app.command("resume")
def resume_schedule(schedule_id: ScheduleArgument, json: Json = False) -> None:
    """Resume a schedule from its next tick."""
    from treadle.surfaces.cli import process, schedules

    process.perform(partial(schedules.resume_schedule, schedule_id, json))


@schedules_app.command("next")
def show_next(
    count: Annotated[int, Option("-n", "--count", min=1, max=1000, help="Maximum number of rows.")] = 10,
    json: Json = False,
) -> None:
    """Show the next ticks of all schedules that are not paused."""
    from treadle.surfaces.cli import process, schedules

    process.perform(partial(schedules.show_next, count, json))
