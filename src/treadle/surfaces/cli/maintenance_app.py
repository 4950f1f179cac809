"""What can be typed to keep house: backups, moving, what is old or wrong. Each imports its work when called."""

from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from treadle.surfaces.cli import completion

house_app = typer.Typer()

Json = Annotated[bool, typer.Option("--json", help="Print JSON, one value per line.")]


@house_app.command("backup")
def back_up(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The file to write.")],
    force: Annotated[bool, typer.Option("--force", help="Replace the file, if it is there.")] = False,
    json: Json = False,
) -> None:
    """Save the home in one file, and check it, while others go on with their work.

    In it are the database, the vault (still encrypted, without its key), the settings, agents and skills."""
    from treadle.surfaces.cli import backup, process

    process.perform(partial(backup.back_up_home, file, force, json))


@house_app.command("restore")
def restore(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="What `treadle backup` has written.")],
    force: Annotated[bool, typer.Option("--force", help="Move aside what is there. Nothing is deleted.")] = False,
    json: Json = False,
) -> None:
    """Make a home from a backup, after checking all of it."""
    from treadle.surfaces.cli import backup, process

    process.perform(partial(backup.restore_home, file, force, json))


@house_app.command("migrate")
def migrate(
    source: Annotated[
        str, typer.Argument(metavar="SOURCE", help="sqlite:///PATH, which no other process has open.")
    ],
    target: Annotated[
        str,
        typer.Argument(
            metavar="TARGET",
            help="postgresql://USER@HOST:PORT/DATABASE, which is empty. The password may be in PGPASSWORD.",
        ),
    ],
    json: Json = False,
) -> None:
    """Move a database to PostgreSQL with its whole history, and check all of it.

    Broken off, the same command goes on where it was. SOURCE is left as it was."""
    from treadle.surfaces.cli import migrate as command
    from treadle.surfaces.cli import process

    process.perform(partial(command.migrate, source, target, json))


@house_app.command("prune")
def prune(
    older_than: Annotated[str, typer.Option(metavar="TIME", help="For example 90d or 12h.")],
    agent: Annotated[
        str | None,
        typer.Option(
            "-a",
            "--agent",
            metavar="NAME",
            help="Only of this agent; without it of all.",
            autocompletion=completion.agent_names,
        ),
    ] = None,
    archive: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write their events to a new file before: X.jsonl or X.jsonl.gz."),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show what would be deleted.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask.")] = False,
    json: Json = False,
) -> None:
    """Delete sessions for good that have ended and that nobody has touched since."""
    from treadle.surfaces.cli import process
    from treadle.surfaces.cli import prune as command

    process.perform(partial(command.prune, older_than, agent, archive, dry_run, yes, json))


@house_app.command("doctor")
def diagnose(
    offline: Annotated[bool, typer.Option("--offline", help="Open no connections; show settings instead.")] = False,
    timeout: Annotated[float, typer.Option(min=0.1, metavar="SECONDS", help="For each probe.")] = 2.0,
    json: Json = False,
) -> None:
    """Probe what is configured, say what is missing and what to do about it, and test every guard.

    Nothing is changed or charged: providers that lack no key are asked for the list of their models. Each line was
    probed just now, or says that it is a setting. Exit code 1 when something is wrong."""
    from treadle.surfaces.cli import doctor, process

    process.perform(partial(doctor.diagnose, offline, timeout, json))
