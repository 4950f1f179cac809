"""The commands `treadle usage`."""

from enum import StrEnum
from functools import partial
from typing import Annotated

from treadle.surfaces.cli.command_line import Group, Option

usage_app = Group()


class By(StrEnum):
    """How what was used is summed up."""

    agent = "agent"
    model = "model"
    day = "day"
    token = "token"


@usage_app.command("usage")
def show_usage(
    agent: Annotated[
        list[str] | None, Option("-a", "--agent", metavar="NAME", help="Only this agent. Repeatable.")
    ] = None,
    since: Annotated[
        str | None, Option(metavar="DAY", help="From this day on, for example 2026-03-01 (UTC).")
    ] = None,
    by: Annotated[By, Option(help="Group by agent, model, day or token.")] = By.agent,
    json: Annotated[bool, Option("--json", help="Print JSON, one value per line.")] = False,
) -> None:
    """Show runs, calls, tokens, cost and credits."""
    from treadle.surfaces.cli import process, usage

    process.perform(partial(usage.show_usage, tuple(agent or ()) or None, since, by.value, json))
