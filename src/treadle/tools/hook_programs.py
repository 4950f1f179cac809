"""The programs of hooks: where they may be, and the private copies that are run.

A hook guards an agent, so its program must not come from a place that the agent can write, unless its content is
pinned. What is checked is what runs: the content is read once and run from a copy."""

import hashlib
import os
import shutil
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager
from pathlib import Path

from msgspec import Struct

from treadle.domain.hooks import CommandHook
from treadle.domain.writable_places import WritablePlaces, is_within

MAX_SCRIPT_BYTES = 2**24
_COPY_MODE = 0o500


class HookPlaces(Struct, frozen=True):
    """Where the programs of an agent's hooks can be."""

    folders: tuple[Path, ...]
    """Folders in the home, in which relative paths are looked up in this order."""
    workspace: Path
    writable: WritablePlaces
    """What the agent can write."""
    temporary: Sequence[str] = ("/tmp", "/var/tmp", "/dev/shm")
    """Folders for private copies. The first that exists and that the agent cannot write is used."""


class HookRefused(Exception):
    """The program of a hook must not run. The message says why and what to do."""


def read_scripts(hook: CommandHook, places: HookPlaces) -> dict[str, bytes]:
    """Return the content of the programs that a hook names by relative paths. Raise HookRefused if one is missing,
    is where the agent can write, or has another content than it should."""
    contents: dict[str, bytes] = {}
    for name in hook.scripts:
        if name.startswith("/"):
            _check_absolute(name, places)
        elif (content := _read_relative(name, hook, places)) is not None:
            contents[name] = content
    if hook.sha256 is not None:
        _check_digest(hook, contents, places)
    return contents


def _check_absolute(name: str, places: HookPlaces) -> None:
    if any(places.writable.includes(step) for step in _list_steps(name)):
        raise HookRefused(
            f"{name} is in a folder that the agent can write. {_advise(places)} Name it by a relative path there."
        )


def _list_steps(path: str) -> tuple[str, ...]:
    """Return the place of the path itself and of what it leads to."""
    return os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path)), os.path.realpath(path)


def _read_relative(name: str, hook: CommandHook, places: HookPlaces) -> bytes | None:
    if ".." in name.split("/"):
        raise HookRefused(f"{name} leads out of its folder. {_advise(places)}")
    for folder in places.folders:
        path = folder / name
        if path.is_file() and not any(places.writable.includes(step) for step in _list_steps(str(path))):
            return _read(path)
    path = places.workspace / name
    if path.is_file():
        content = _read(path)
        if hook.sha256 is None:
            digest = hashlib.sha256(content).hexdigest()
            raise HookRefused(
                f"{name} is in the workspace, where the agent that it guards can change it. {_advise(places)} Or "
                f"pin its content in the agent's file: `sha256: {digest}`."
            )
        return content
    if "/" in name:
        raise HookRefused(f"{name} was not found. {_advise(places)}")
    return None


def _read(path: Path) -> bytes:
    with path.open("rb") as file:
        content = file.read(MAX_SCRIPT_BYTES + 1)
    if len(content) > MAX_SCRIPT_BYTES:
        raise HookRefused(f"{path} is larger than {MAX_SCRIPT_BYTES} bytes. Use a smaller program.")
    return content


def _check_digest(hook: CommandHook, contents: dict[str, bytes], places: HookPlaces) -> None:
    if len(contents) != 1:
        raise HookRefused(
            f"`sha256` is for one program, and the command names {len(contents)} by a relative path. "
            f"{_advise(places)}"
        )
    ((name, content),) = contents.items()
    digest = hashlib.sha256(content).hexdigest()
    if hook.sha256 is not None and digest != hook.sha256.lower():
        raise HookRefused(
            f"{name} has changed since it was approved. If you have checked it, set `sha256: {digest}` of the hook "
            f"in the agent's file."
        )


def _advise(places: HookPlaces) -> str:
    return f"Put it into {places.folders[0]}." if places.folders else "Put it into the home."


@contextmanager
def copy_scripts(contents: dict[str, bytes], places: HookPlaces) -> Generator[Path]:
    """Yield a new folder that contains nothing but these programs. The agent cannot write it."""
    folder = Path(tempfile.mkdtemp(prefix="treadle-hook-", dir=_find_temporary(places)))
    try:
        for name, content in contents.items():
            target = folder / os.path.normpath(name)
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(content)
            target.chmod(_COPY_MODE)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _find_temporary(places: HookPlaces) -> str:
    for folder in places.temporary:
        real = os.path.realpath(folder)
        contains = any(is_within(real, each) for each in places.writable.folders)
        if os.path.isdir(real) and not contains:
            return real
    raise HookRefused("The agent can write every folder for temporary files. Give it a smaller workspace.")
