"""Restores files, one path at a time, never through a link."""

import os
import secrets
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager, suppress

from treadle.domain.file_versions import FOLDER_MARK, FileVersion, NetChange, find_conflict
from treadle.file_versions.contents import ContentStore, describe_at
from treadle.ports.file_versions import RestoredPath

_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_NOT_STORED = "its content was not stored ({reason})"
_LOST = "its stored content is missing or damaged"

RecordChange = Callable[[NetChange, FileVersion | None, FileVersion | None], None]
"""Records that a path is about to be restored: from what is there, to what was there."""


class NotRestored(Exception):
    """A path cannot be restored; the message says why."""


@contextmanager
def open_parent(folder: str, path: str, *, create: bool = False) -> Generator[tuple[int, str]]:
    """Yield the open folder that a path is in, and its last name. Raise OSError if there is no such folder, or if
    a link is on the way."""
    *parents, name = path.rstrip(FOLDER_MARK).split("/")
    current = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for parent in parents:
            if create:
                with suppress(FileExistsError):
                    os.mkdir(parent, dir_fd=current)
            following = os.open(parent, _FOLDER_FLAGS, dir_fd=current)
            os.close(current)
            current = following
        yield current, name
    finally:
        os.close(current)


def find_present(change: NetChange, store: ContentStore | None = None) -> FileVersion | None:
    """Return what is at the path of a change now, and store its content if there is a store."""
    try:
        with open_parent(change.folder, change.path) as (folder, name):
            full = f"{change.folder.rstrip('/')}/{change.path.rstrip(FOLDER_MARK)}"
            return describe_at(folder, name, full, store, durable=store is not None)
    except OSError:
        return None


def restore_all(
    changes: Sequence[NetChange], overwrite: Callable[[str], bool], store: ContentStore, record: RecordChange
) -> list[RestoredPath]:
    """Restore paths: files that were created go first, then their folders; then folders and files come back."""
    return [_restore(change, overwrite, store, record) for change in sorted(changes, key=_find_turn)]


def _find_turn(change: NetChange) -> tuple[int, int, str]:
    depth, is_folder = change.path.count("/"), change.path.endswith(FOLDER_MARK)
    if change.before is None:
        return (1 if is_folder else 0, -depth, change.path)
    return (2 if is_folder else 3, depth, change.path)


def _restore(
    change: NetChange, overwrite: Callable[[str], bool], store: ContentStore, record: RecordChange
) -> RestoredPath:
    present = find_present(change)
    if present == change.before:
        return RestoredPath(change.path, "unchanged")
    conflict = find_conflict(change, present)
    if conflict is not None and not overwrite(change.path):
        return RestoredPath(change.path, "conflict", conflict)
    try:
        content = _read_content(change.before, store)
        record(change, find_present(change, store), change.before)
        with open_parent(change.folder, change.path, create=change.before is not None) as (folder, name):
            _put(folder, name, change.before, content, present)
    except NotRestored as reason:
        return RestoredPath(change.path, "failed", str(reason))
    except OSError as error:
        return RestoredPath(change.path, "failed", error.strerror or type(error).__name__)
    return RestoredPath(change.path, "restored")


def _read_content(version: FileVersion | None, store: ContentStore) -> bytes:
    if version is None or version.kind == "folder":
        return b""
    if version.unstored:
        raise NotRestored(_NOT_STORED.format(reason=version.unstored))
    content = store.read(version.digest)
    if content is None:
        raise NotRestored(_LOST)
    return content


def _put(folder: int, name: str, version: FileVersion | None, content: bytes, present: FileVersion | None) -> None:
    """Replace what is at a name in an open folder."""
    if present is not None and present.kind == "folder" and (version is None or version.kind != "folder"):
        os.rmdir(name, dir_fd=folder)  # fails if it is not empty
    if version is None:
        if present is not None and present.kind != "folder":
            os.unlink(name, dir_fd=folder)
    elif version.kind == "folder":
        if present is not None and present.kind != "folder":
            os.unlink(name, dir_fd=folder)
        with suppress(FileExistsError):
            os.mkdir(name, dir_fd=folder)
        os.chmod(name, version.mode, dir_fd=folder)
    else:
        _replace(folder, name, version, content)


def _replace(folder: int, name: str, version: FileVersion, content: bytes) -> None:
    temporary = f".{secrets.token_hex(8)}.tmp"
    try:
        if version.kind == "link":
            os.symlink(os.fsdecode(content), temporary, dir_fd=folder)
        else:
            descriptor = os.open(temporary, _CREATE_FLAGS, 0o600, dir_fd=folder)
            with open(descriptor, "wb") as file:
                file.write(content)
                file.flush()
                os.fchmod(descriptor, version.mode & 0o777)
                os.fsync(descriptor)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
    except BaseException:
        with suppress(OSError):
            os.unlink(temporary, dir_fd=folder)
        raise
