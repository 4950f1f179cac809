"""Private copies of files and folders, by the hash of their content: what runs instead of code that a run could
change."""

import asyncio
import os
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path

from treadle.domain.writable_places import WritablePlaces, is_within
from treadle.ports.sandbox import CommandError
from treadle.system.engine_places import list_path_steps

MAX_FILES = 50_000
MAX_BYTES = 512 * 2**20
LEFT_OUT = frozenset(("__pycache__", ".git"))
"""Folders that are neither hashed nor copied: they change although the code does not. Python compiles again."""
LEFT_OUT_SUFFIX = ".pyc"
_CHUNK_BYTES = 2**20


class ContentFolder:
    """Implements `ports.sandbox.Contents` with a folder that no run can write."""

    def __init__(self, folder: Path, places: Callable[[], WritablePlaces] = WritablePlaces) -> None:
        self._folder = folder
        self._places = places

    async def measure(self, place: str) -> str:
        return await asyncio.to_thread(hash_content, place, self._places())

    async def keep(self, place: str) -> str:
        return await asyncio.to_thread(self._keep, place)

    def find(self, digest: str) -> str | None:
        path = self._folder / digest
        return str(path) if path.exists() else None

    def remove_unused(self, used: frozenset[str]) -> None:
        """Remove all copies except these."""
        if self._folder.is_dir():
            for path in self._folder.iterdir():
                if path.name not in used:
                    _remove(path)

    def _keep(self, place: str) -> str:
        hash_content(place, self._places())  # before anything is copied: it may be too large
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix="new-", dir=self._folder))
        try:
            copy = temporary / "copy"
            _copy(place, copy)
            digest = hash_content(str(copy), self._places(), place)
            target = self._folder / digest
            if not target.exists():
                copy.rename(target)
            return digest
        except OSError as error:
            raise CommandError(f"{place} cannot be copied: {error}.") from None
        finally:
            _remove(temporary)


def hash_content(path: str, places: WritablePlaces, place: str = "") -> str:
    """Return the hash of a file or folder. `place` is its original place, if this is a copy.

    Raise CommandError if it is too large, or has a link to something else that a run can write."""
    digest = sha256()
    size = 0
    try:
        for count, (name, info) in enumerate(_walk(path)):
            size += info.st_size
            if count >= MAX_FILES or size > MAX_BYTES:
                raise CommandError(
                    f"{place or path} has more than {MAX_FILES} files or {MAX_BYTES // 2**20} MB, and cannot be "
                    f"pinned by content. Install it in a folder that no agent works in."
                )
            file = os.path.join(path, name) if name else path
            digest.update(f"{len(name.encode(errors='surrogateescape'))}:".encode() + os.fsencode(name))
            if stat.S_ISLNK(info.st_mode):
                target = os.readlink(file)
                _check_link(os.path.join(place or path, name), target, place or path, places)
                digest.update(b"l%d:" % len(os.fsencode(target)) + os.fsencode(target))
            elif stat.S_ISDIR(info.st_mode):
                digest.update(b"d")
            elif stat.S_ISREG(info.st_mode):
                digest.update(b"x" if info.st_mode & 0o111 else b"f")
                digest.update(_hash_file(file))
            else:
                raise CommandError(f"{file} is not a file, and cannot be pinned by content. Remove it.")
    except OSError as error:
        raise CommandError(f"{place or path} cannot be read: {error}.") from None
    return digest.hexdigest()


def _walk(root: str, name: str = "") -> Iterator[tuple[str, os.stat_result]]:
    """Yield all entries of a folder in a fixed order, by their path in it, beginning with the folder itself."""
    path = os.path.join(root, name) if name else root
    info = os.lstat(path)
    yield name, info
    if stat.S_ISDIR(info.st_mode):
        for child in sorted(os.listdir(path)):
            if not _is_left_out(child):
                yield from _walk(root, os.path.join(name, child))


def _is_left_out(name: str) -> bool:
    return name in LEFT_OUT or name.endswith(LEFT_OUT_SUFFIX)


def _hash_file(file: str) -> bytes:
    digest = sha256()
    with open(os.open(file, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as opened:
        while chunk := opened.read(_CHUNK_BYTES):
            digest.update(chunk)
    return digest.digest()


def _check_link(link: str, target: str, root: str, places: WritablePlaces) -> None:
    """Raise CommandError if a link leads out of what is pinned and to a place that a run can write."""
    for step in list_path_steps(os.path.join(os.path.dirname(link), target)):
        if places.includes(step) and not is_within(step, root):
            raise CommandError(
                f"{link} links to {step}, which a run can write, so {root} cannot be pinned by content. "
                f"Install it in a folder that no agent works in."
            )


def _copy(place: str, copy: Path) -> None:
    """Copy a file or folder, with links as links."""
    if not os.path.isdir(place):
        shutil.copy2(place, copy, follow_symlinks=False)
        return

    def list_left_out(folder: str, names: list[str]) -> list[str]:
        return [name for name in names if _is_left_out(name)]

    shutil.copytree(place, copy, symlinks=True, ignore=list_left_out)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        path.unlink(missing_ok=True)
