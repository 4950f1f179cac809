"""`treadle backup` and `treadle restore`: a home in one file, and back."""

from pathlib import Path
from typing import Annotated, Any

import msgspec

from treadle.surfaces.cli.command_line import Argument, Group, Option
from treadle.surfaces.cli.shared_options import Json
from treadle.surfaces.home_access.connection import current_home
from treadle.surfaces.terminal.output import alert, format_count, note, print_json

group = Group()


@group.command("backup")
async def back_up(
    file: Annotated[Path, Argument(metavar="FILE", help="The file to write.")],
    force: Annotated[bool, Option("--force", help="Overwrite an existing file.")] = False,
    json: Json = False,
) -> int:
    """Write a backup of the home to one file and verify it. Other processes continue.

    It holds the database, the vault (encrypted, without its key), the settings, agents and skills."""
    from treadle.backup.home_backup import back_up

    made = back_up(current_home(), file, force)
    manifest = made.manifest
    if json:
        print_json({"path": made.path, "left_out": made.left_out, **msgspec.to_builtins(manifest)})
        return 0
    print(made.path)
    note(f"Backed up and verified: {_contents(manifest.database)}, {format_count(len(manifest.parts), 'file')}.")
    if manifest.vault_key is not None:
        note(f"The vault in it is encrypted. Its key is not in the backup: keep {manifest.vault_key} too.")
    for name in made.left_out:
        note(f"Left out, because it is not a regular file: {name}")
    return 0


@group.command("restore")
async def restore_home(
    file: Annotated[Path, Argument(metavar="FILE", help="A file that `treadle backup` has written.")],
    force: Annotated[bool, Option("--force", help="Move existing files aside. Nothing is deleted.")] = False,
    json: Json = False,
) -> int:
    """Restore a home from a backup, after verifying the whole file."""
    from treadle.backup.home_backup import restore

    restored = restore(current_home(), file, force)
    manifest = restored.manifest
    if json:
        places = {"home": restored.home, "database": restored.database, "moved_to": restored.moved_to}
        print_json({**places, **msgspec.to_builtins(manifest)})
        return 0
    note(f"Restored {restored.home} as of {manifest.made_at}: {_contents(manifest.database)}.")
    for folder in restored.moved_to:
        note(f"The previous files are in {folder}.")
    if manifest.database is not None and manifest.database.unfinished:
        alert(
            f"{format_count(manifest.database.unfinished, 'run')} had not ended when the backup was made. The next "
            "command that runs an agent continues them: `treadle runs list` shows them, `treadle runs cancel RUN` "
            "ends one."
        )
    if manifest.vault_key is not None:
        alert(f"The key of the vault was in {manifest.vault_key}. Without it the vault cannot be read.")
    return 0


def _contents(facts: Any) -> str:
    if facts is None:
        return "no database"
    return f"{format_count(facts.runs, 'run')} with {format_count(facts.events, 'event')}"
