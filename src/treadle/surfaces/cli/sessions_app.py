"""What can be typed after `treadle sessions`. Each command imports its work when it is called."""

from functools import partial
from typing import Annotated

import typer

sessions_app = typer.Typer(help="Look at sessions and what the model is shown of them.", no_args_is_help=True)

Json = Annotated[bool, typer.Option("--json", help="Print JSON, one value per line.")]


@sessions_app.command("list")
def list_sessions(limit: Annotated[int, typer.Option(min=1, help="How many.")] = 20, json: Json = False) -> None:
    """List sessions, the latest first, each with its segments."""
    from treadle.surfaces.cli import process, sessions

    process.perform(partial(sessions.list_sessions, limit, json))


@sessions_app.command("show")
def show_session(
    session_id: Annotated[str, typer.Argument(metavar="SESSION", help="The id of a session: ses_…")],
    json: Json = False,
) -> None:
    """Show one session: its runs, and the lineage of its segments."""
    from treadle.surfaces.cli import process, sessions

    process.perform(partial(sessions.show_session, session_id, json))
