"""The commands `treadle sessions`."""

from functools import partial
from typing import Annotated

from treadle.surfaces.cli import completion
from treadle.surfaces.cli.command_line import Argument, Group, Option

sessions_app = Group("sessions")

Json = Annotated[bool, Option("--json", help="Print JSON, one value per line.")]
SessionArgument = Annotated[
    str,
    Argument(metavar="SESSION", help="The id of the session, ses_…", suggest=completion.session_ids),
]


@sessions_app.command("list")
def list_sessions(
    limit: Annotated[int, Option(min=1, help="Maximum number of rows.")] = 20, json: Json = False
) -> None:
    """List sessions with their segments, latest first."""
    from treadle.surfaces.cli import process, sessions

    process.perform(partial(sessions.list_sessions, limit, json))


@sessions_app.command("show")
def show_session(
    session_id: SessionArgument,
    json: Json = False,
) -> None:
    """Show the runs of a session and the lineage of its segments."""
    from treadle.surfaces.cli import process, sessions

    process.perform(partial(sessions.show_session, session_id, json))


@sessions_app.command("delete")
def delete_session(
    session_id: SessionArgument,
    yes: Annotated[bool, Option("--yes", help="Do not ask for confirmation.")] = False,
    json: Json = False,
) -> None:
    """Delete a session permanently, with its runs, events, results and memories."""
    from treadle.surfaces.cli import process, sessions

    process.perform(partial(sessions.delete_session, session_id, yes, json))
