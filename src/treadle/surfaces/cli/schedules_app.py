"""What can be typed after `treadle schedules`. Each command imports its work when it is called."""

from functools import partial
from typing import Annotated

import typer

from treadle.surfaces.cli import completion

schedules_app = typer.Typer(help="Send messages to agents by themselves, at set times.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, one value per line.")]
ScheduleArgument = Annotated[str, typer.Argument(metavar="SCHEDULE", help="The id of a schedule.")]


@schedules_app.command("list")
def list_schedules(json: Json = False) -> None:
    """List the schedules, and the heartbeats of agents."""
    from treadle.surfaces.cli import process, schedules

    process.perform(partial(schedules.list_schedules, json))


@schedules_app.command("add")
def add_schedule(
    every: Annotated[
        str,
        typer.Argument(metavar="EVERY", help='Seconds, a time such as 15m, or a cron expression: "0 9 * * 1-5".'),
    ],
    message: Annotated[str, typer.Argument(metavar="MESSAGE", help="What the agent is told each time.")],
    agent: Annotated[
        str,
        typer.Option("-a", "--agent", metavar="NAME", help="The agent.", autocompletion=completion.agent_names),
    ] = "default",
    zone: Annotated[str, typer.Option(metavar="ZONE", help="The time zone of a cron expression.")] = "UTC",
    session: Annotated[
        str | None,
        typer.Option(
            metavar="SESSION",
            help="Go on in this session; without it each run begins its own.",
            autocompletion=completion.session_ids,
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Send a message to an agent again and again, while `treadle serve` runs.

    What is missed while it does not run becomes one run when it does."""
    from treadle.surfaces.cli import process, schedules

    wanted = schedules.Wanted(every, message, agent, zone, session)
    process.perform(partial(schedules.add_schedule, wanted, json))


@schedules_app.command("remove")
def remove_schedule(schedule_id: ScheduleArgument, json: Json = False) -> None:
    """Remove a schedule; runs that it has started go on."""
    from treadle.surfaces.cli import process, schedules

    process.perform(partial(schedules.remove_schedule, schedule_id, json))


@schedules_app.command("pause")
def pause_schedule(schedule_id: ScheduleArgument, json: Json = False) -> None:
    """Let a schedule start no runs."""
    from treadle.surfaces.cli import process, schedules

    process.perform(partial(schedules.pause_schedule, schedule_id, json))


@schedules_app.command("resume")
def resume_schedule(schedule_id: ScheduleArgument, json: Json = False) -> None:
    """Go on with a schedule, from its next time on."""
    from treadle.surfaces.cli import process, schedules

    process.perform(partial(schedules.resume_schedule, schedule_id, json))


@schedules_app.command("next")
def show_next(
    count: Annotated[int, typer.Option("-n", "--count", min=1, max=1000, help="How many.")] = 10,
    json: Json = False,
) -> None:
    """Show the times that come next, of all schedules that are not paused."""
    from treadle.surfaces.cli import process, schedules

    process.perform(partial(schedules.show_next, count, json))
