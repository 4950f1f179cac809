"""What can be typed after `treadle usage`. It imports its work when it is called."""

from enum import StrEnum
from functools import partial
from typing import Annotated

import typer

usage_app = typer.Typer()


class By(StrEnum):
    """How what was used is summed up."""

    agent = "agent"
    model = "model"
    day = "day"
    token = "token"


@usage_app.command("usage")
def show_usage(
    agent: Annotated[
        list[str] | None, typer.Option("-a", "--agent", metavar="NAME", help="Only this agent; may be repeated.")
    ] = None,
    since: Annotated[
        str | None, typer.Option(metavar="DAY", help="From this day on, as 2026-03-01, in UTC.")
    ] = None,
    by: Annotated[By, typer.Option(help="A line for each of these.")] = By.agent,
    json: Annotated[bool, typer.Option("--json", help="Print JSON, one value per line.")] = False,
) -> None:
    """Show what was used: runs, calls, tokens, cost and credits."""
    from treadle.surfaces.cli import process, usage

    process.perform(partial(usage.show_usage, tuple(agent or ()) or None, since, by.value, json))
