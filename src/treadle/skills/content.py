"""Reads the folder of a skill: every file once, with a hash of exactly these bytes.

Every name is opened relative to its parent folder, which stays open, and never through a link. Only regular files
are read. The bytes that are hashed are the bytes that are used, so nothing can be swapped in between. Nothing is
cached by time stamps, because a file can be changed without changing them. Reading 50 skills takes a few
milliseconds."""

import errno
import hashlib
import os
import stat
from collections.abc import Generator, Iterable
from contextlib import contextmanager
from itertools import islice
from pathlib import Path

from msgspec import Struct

from treadle.domain.inert_text import has_hidden
from treadle.skills.manifest import InvalidSkill

MAX_FILES = 200
"""Files and folders."""
MAX_BYTES = 2_000_000
"""Total size of its files. They are read for every run. The largest skills in use, those for office documents, have
a little more than 1 MB of schemas."""
_MAX_DEPTH = 8
_SAFE = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_FOLDER = _SAFE | os.O_DIRECTORY
_NO_FOLDER = (errno.ENOTDIR, errno.ELOOP)
_FORMAT = b"treadle skill 1\n"


class SkillFile(Struct, frozen=True):
    path: str
    """Relative to the folder of the skill."""
    content: bytes
    executable: bool = False


class SkillContent(Struct, frozen=True):
    """All files of a skill, by path."""

    files: tuple[SkillFile, ...]
    sha256: str

    @property
    def instructions(self) -> SkillFile:
        """SKILL.md. Raises InvalidSkill if it is missing."""
        for name in ("SKILL.md", "skill.md"):
            if (found := self.file(name)) is not None:
                return found
        raise InvalidSkill("it has no SKILL.md")

    @property
    def others(self) -> tuple[SkillFile, ...]:
        """All files but SKILL.md."""
        return tuple(file for file in self.files if file is not self.instructions)

    def file(self, path: str) -> SkillFile | None:
        return next((file for file in self.files if file.path == path), None)


# ── Folders ──


@contextmanager
def open_folder(root: Path, *names: str) -> Generator[int]:
    """Open a folder for the duration of the block: `root`, and from there by names that are not links.

    Raise FileNotFoundError if a name does not exist, and InvalidSkill if it is not a folder."""
    folder = os.open(root, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in names:
            inner = _open_folder(name, folder)
            os.close(folder)
            folder = inner
        yield folder
    finally:
        os.close(folder)


def _open_folder(name: str, within: int) -> int:
    try:
        return os.open(name, _FOLDER, dir_fd=within)
    except FileNotFoundError:
        raise
    except OSError as error:
        if error.errno in _NO_FOLDER:
            raise InvalidSkill(f"{name!a} is a link or not a folder; only a real folder is accepted") from None
        raise InvalidSkill(f"{name!a} cannot be opened: {error.strerror}") from None


# ── Files ──


def read_regular(name: str, within: int, most: int) -> tuple[bytes, os.stat_result]:
    """Return the first `most` bytes of a regular file, and its status. Raise OSError, or InvalidSkill if it is not
    a regular file."""
    descriptor = os.open(name, _SAFE, dir_fd=within)
    try:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise InvalidSkill(f"{name!a} is not a regular file")
        parts: list[bytes] = []
        missing = min(found.st_size, most)
        while missing > 0 and (part := os.read(descriptor, missing)):
            parts.append(part)
            missing -= len(part)
        return b"".join(parts), found
    finally:
        os.close(descriptor)


def read_content(name: str, within: int) -> SkillContent:
    """Return the skill in the folder of this name. Raise FileNotFoundError or InvalidSkill."""
    folder = _open_folder(name, within)
    try:
        files = sorted(_FolderReader().files(folder, "", 0), key=lambda file: file.path)
    finally:
        os.close(folder)
    return SkillContent(tuple(files), compute_fingerprint(files))


def compute_fingerprint(files: Iterable[SkillFile]) -> str:
    """Return one hash over the names, contents and executable bits of sorted files."""
    digest = hashlib.sha256(_FORMAT)
    for file in files:
        path = file.path.encode()
        digest.update(b"%d:%s:%d:%d:" % (len(path), path, file.executable, len(file.content)))
        digest.update(file.content)
    return digest.hexdigest()


class _FolderReader:
    def __init__(self) -> None:
        self._entries = 0
        self._bytes = 0

    def files(self, folder: int, prefix: str, depth: int) -> Generator[SkillFile]:
        for entry in self._list_entries(folder, prefix):
            path = f"{prefix}{entry.name}"
            if entry.is_dir(follow_symlinks=False):
                yield from self._read_subfolder(entry.name, folder, path, depth + 1)
            elif entry.is_file(follow_symlinks=False):
                yield self._file(entry.name, folder, path)
            else:
                raise InvalidSkill(f"{path} is a link or another special file; only regular files are accepted")

    def _list_entries(self, folder: int, prefix: str) -> list["os.DirEntry[str]"]:
        try:
            with os.scandir(folder) as listed:
                entries = list(islice(listed, MAX_FILES + 1))
        except OSError as error:
            raise InvalidSkill(f"{prefix or 'the folder'} cannot be read: {error.strerror}") from None
        self._entries += len(entries)
        if self._entries > MAX_FILES:
            raise InvalidSkill(f"it has more than {MAX_FILES} files and folders")
        for entry in entries:
            if not entry.name.isprintable() or has_hidden(entry.name):
                raise InvalidSkill(f"the name {prefix + entry.name!a} has characters that cannot be seen")
        return entries

    def _read_subfolder(self, name: str, within: int, path: str, depth: int) -> Generator[SkillFile]:
        if depth > _MAX_DEPTH:
            raise InvalidSkill(f"{path} is more than {_MAX_DEPTH} folders deep")
        try:
            folder = _open_folder(name, within)
        except FileNotFoundError:
            raise InvalidSkill(f"{path} disappeared while it was read") from None
        try:
            yield from self.files(folder, f"{path}/", depth)
        finally:
            os.close(folder)

    def _file(self, name: str, within: int, path: str) -> SkillFile:
        try:
            content, found = read_regular(name, within, MAX_BYTES - self._bytes + 1)
        except OSError as error:
            raise InvalidSkill(f"{path} cannot be read: {error.strerror}") from None
        self._bytes += len(content)
        if self._bytes > MAX_BYTES:
            most = MAX_BYTES // 1_000_000
            raise InvalidSkill(
                f"its files have more than {most} MB in total, and {most} MB are accepted; take some out"
            )
        return SkillFile(path, content, bool(found.st_mode & 0o111))
