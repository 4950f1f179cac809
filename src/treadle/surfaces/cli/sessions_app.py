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
    """List sessions, latest first."""
    from treadle.surfaces.cli import process, sessions

    process.perform(partial(sessions.list_sessions, limit, json))


@sessions_app.command("show")
def show_session(
    session_id: SessionArgument,
    json: Json = False,
) -> None:
    """Show the runs and the segments of a session."""
    from treadle.surfaces.cli import process, sessions

    process.perform(partial(sessions.show_session, session_id, json))


@sessions_app.command("rename")
def rename_session(
    session_id: SessionArgument,
    title: Annotated[str, Argument(metavar="TITLE", help="The title, at most 80 characters.")],
    json: Json = False,
) -> None:
    """Give a session a title. By default its title is the beginning of its first message."""
    from treadle.surfaces.cli import process, sessions

    process.perform(partial(sessions.rename_session, session_id, title, json))


@sessions_app.command("delete")
def delete_session(
    session_id: SessionArgument,
    yes: Annotated[bool, Option("--yes", help="Do not ask for confirmation.")] = False,
    json: Json = False,
) -> None:
    """Delete a session permanently, with its runs, events, results and memories."""
    from treadle.surfaces.cli import process, sessions

    process.perform(partial(sessions.delete_session, session_id, yes, json))
