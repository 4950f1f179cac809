"""Mounts of a sandbox that keep parts of the writable folders as they are."""

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from msgspec import Struct, structs

from treadle.domain.writable_places import EnginePlaces, explain_protection, is_within
from treadle.ports.sandbox import CommandError
from treadle.sandbox.executed_scan import ExecutedScan


class Mount(Struct, frozen=True):
    place: str
    arguments: tuple[str, ...]

    @property
    def depth(self) -> int:
        """Mounts inside other folders come after those."""
        return len(Path(self.place).parts)


class ExposedFolder(Struct, frozen=True):
    place: Path
    writable: bool


def list_protected(shown: Iterable[ExposedFolder], engine: EnginePlaces) -> list[str]:
    """Return the places of the engine in the folders that commands can write.

    Raise CommandError if a folder is such a place itself."""
    found: dict[str, None] = {}
    for folder in shown:
        if folder.writable:
            if (place := engine.find_enclosing(str(folder.place))) is not None:
                raise CommandError(f"Commands must not write to {folder.place}. {explain_protection(place)}")
            found |= dict.fromkeys(engine.list_inside(str(folder.place)))
    return list(found)


def mount_read_only(places: Iterable[str]) -> list[Mount]:
    """Return read-only mounts of these places. A missing one becomes an empty folder, so that it cannot be
    created."""
    return [
        Mount(place, ("--ro-bind", place, place) if os.path.exists(place) else _mount_empty(place))
        for place in places
    ]


def _mount_empty(place: str) -> tuple[str, ...]:
    return ("--tmpfs", place, "--remount-ro", place)


def mount_executed(executed: ExecutedScan, others: Sequence[str]) -> list[Mount]:
    """Return read-only mounts of the files that other programs execute, and mounts that keep their folders in
    place. `others` are mounted in another way, with everything in them."""
    kept: list[str] = []
    for place in sorted(executed.read_only):  # a folder comes before what is in it
        if not any(is_within(place, each) for each in (*others, *kept)):
            kept.append(place)
    pinned = [place for place in executed.pinned if not any(is_within(place, each) for each in (*others, *kept))]
    return [
        *(Mount(place, ("--bind-try", place, place)) for place in pinned),
        *(
            Mount(place, ("--ro-bind-try", place, place) if os.path.lexists(place) else _mount_empty(place))
            for place in kept
        ),
    ]


def select_writable(executed: ExecutedScan, shown: Sequence[ExposedFolder]) -> ExecutedScan:
    """Return the places of a scan that commands can write. To mount others would show what is not shown, or make it
    writable."""

    def is_writable(place: str) -> bool:
        around = [folder for folder in reversed(shown) if is_within(place, str(folder.place))]
        return bool(around) and max(around, key=lambda folder: len(folder.place.parts)).writable

    return structs.replace(
        executed,
        read_only=tuple(filter(is_writable, executed.read_only)),
        pinned=tuple(filter(is_writable, executed.pinned)),
    )


def pin_parents(places: Iterable[str], shown: Sequence[ExposedFolder]) -> list[Mount]:
    """Return mounts of the folders between a writable folder and these places in it.

    A folder that contains a mount could be renamed and replaced, together with what is mounted in it. A folder that
    is a mount cannot."""
    writable = [str(folder.place) for folder in shown if folder.writable]
    others = {str(folder.place) for folder in shown}
    parents = {parent for place in places for parent in _list_parents(place, writable)}
    return [Mount(place, ("--bind", place, place)) for place in sorted(parents - others) if os.path.isdir(place)]


def _list_parents(place: str, writable: Sequence[str]) -> Iterator[str]:
    for folder in writable:
        if is_within(place, folder):
            parent = os.path.dirname(place)
            while parent != folder and is_within(parent, folder):
                yield parent
                parent = os.path.dirname(parent)
