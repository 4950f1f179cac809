"""What can be typed to keep house: backups, moving, what is old or wrong. Each imports its work when called."""

from functools import partial
from pathlib import Path
from typing import Annotated

from treadle.surfaces.cli import completion
from treadle.surfaces.cli.command_line import Argument, Group, Option

maintenance_app = Group()

Json = Annotated[bool, Option("--json", help="Print JSON, one value per line.")]


@maintenance_app.command("backup")
def back_up(
    file: Annotated[Path, Argument(metavar="FILE", help="The file to write.")],
    force: Annotated[bool, Option("--force", help="Overwrite an existing file.")] = False,
    json: Json = False,
) -> None:
    """Write a backup of the home to one file and verify it. Other processes continue.

    It holds the database, the vault (encrypted, without its key), the settings, agents and skills."""
    from treadle.surfaces.cli import backup, process

    process.perform(partial(backup.back_up_home, file, force, json))


@maintenance_app.command("restore")
def restore(
    file: Annotated[Path, Argument(metavar="FILE", help="A file that `treadle backup` has written.")],
    force: Annotated[bool, Option("--force", help="Move existing files aside. Nothing is deleted.")] = False,
    json: Json = False,
) -> None:
    """Restore a home from a backup, after verifying the whole file."""
    from treadle.surfaces.cli import backup, process

    process.perform(partial(backup.restore_home, file, force, json))


@maintenance_app.command("migrate")
def migrate(
    source: Annotated[str, Argument(metavar="SOURCE", help="sqlite:///PATH. No other process may have it open.")],
    target: Annotated[
        str,
        Argument(
            metavar="TARGET",
            help="postgresql://USER@HOST:PORT/DATABASE. It must be empty. The password can be in PGPASSWORD.",
        ),
    ],
    json: Json = False,
) -> None:
    """Copy a database with its whole history to PostgreSQL and verify all rows.

    Run the same command again to resume an interrupted migration. SOURCE is not changed."""
    from treadle.surfaces.cli import migrate as command
    from treadle.surfaces.cli import process

    process.perform(partial(command.migrate, source, target, json))


@maintenance_app.command("prune")
def prune(
    older_than: Annotated[str, Option(metavar="TIME", help="Minimum age, for example 90d or 12h.")],
    agent: Annotated[
        str | None,
        Option(
            "-a",
            "--agent",
            metavar="NAME",
            help="Only this agent. Default: all agents.",
            suggest=completion.agent_names,
        ),
    ] = None,
    archive: Annotated[
        Path | None,
        Option(metavar="FILE", help="Write the events to a new file first: X.jsonl or X.jsonl.gz."),
    ] = None,
    dry_run: Annotated[bool, Option("--dry-run", help="Only print what would be deleted.")] = False,
    yes: Annotated[bool, Option("--yes", help="Do not ask for confirmation.")] = False,
    json: Json = False,
) -> None:
    """Delete old sessions permanently. Sessions with a run in progress are kept."""
    from treadle.surfaces.cli import process
    from treadle.surfaces.cli import prune as command

    process.perform(partial(command.prune, older_than, agent, archive, dry_run, yes, json))


@maintenance_app.command("doctor")
def diagnose(
    offline: Annotated[bool, Option("--offline", help="Open no connections; print settings instead.")] = False,
    timeout: Annotated[float, Option(min=0.1, metavar="SECONDS", help="Time limit of each probe.")] = 2.0,
    json: Json = False,
) -> None:
    """Check the configuration, the providers and every guard, and print what is missing.

    Nothing is changed or charged: providers with a key are asked for the list of their models. Each line is
    `probed` or a `setting`, which was not tried. The exit code is 1 if something is wrong."""
    from treadle.surfaces.cli import doctor, process

    process.perform(partial(doctor.diagnose, offline, timeout, json))
