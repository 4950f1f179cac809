"""`treadle backup` and `treadle restore`: a home in one file, and back."""

import os
from pathlib import Path
from typing import Any

import msgspec

from treadle.backup.home_backup import back_up, restore
from treadle.config.home import Home
from treadle.surfaces.cli.event_output import note, say
from treadle.surfaces.cli.terminal import print_json


async def back_up_home(file: Path, force: bool, json: bool) -> int:
    made = back_up(Home.from_environment(os.environ), file, force)
    manifest = made.manifest
    if json:
        _print_json({"path": made.path, "left_out": made.left_out, **msgspec.to_builtins(manifest)})
        return 0
    print(made.path)
    note(f"backed up and checked: {_held(manifest.database)}, {_count(len(manifest.parts), 'file')}")
    if manifest.vault_key is not None:
        note(f"the vault in it is encrypted; its key is not in it. It lies in {manifest.vault_key}: keep that too")
    for name in made.left_out:
        note(f"left out, because it is no plain file: {name}")
    return 0


async def restore_home(file: Path, force: bool, json: bool) -> int:
    put = restore(Home.from_environment(os.environ), file, force)
    manifest = put.manifest
    if json:
        _print_json(
            {"home": put.home, "database": put.database, "moved_to": put.moved_to, **msgspec.to_builtins(manifest)}
        )
        return 0
    note(f"{put.home} is as it was on {manifest.made_at}: {_held(manifest.database)}")
    for folder in put.moved_to:
        note(f"what was there before lies in {folder}")
    if manifest.database is not None and manifest.database.unfinished:
        count = _count(manifest.database.unfinished, "run")
        say(
            f"{count} had not ended when the backup was made, and will go on with the next command that runs an "
            "agent; `treadle runs list` shows them, `treadle runs cancel RUN` ends one"
        )
    if manifest.vault_key is not None:
        say(f"the key of the vault was in {manifest.vault_key}; without it nothing in the vault can be read")
    return 0


def _held(facts: Any) -> str:
    if facts is None:
        return "no database"
    return f"{_count(facts.runs, 'run')} with {_count(facts.events, 'event')}"


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _print_json(value: Any) -> None:
    print_json(value)
