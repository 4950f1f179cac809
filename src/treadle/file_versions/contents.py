"""Contents of files by their digest. Each is a file of its own, readable by its user only."""

import os
import secrets
import stat
from collections.abc import Collection
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path

from treadle.domain.file_versions import MAX_STORED_BYTES, FileVersion
from treadle.domain.private_paths import find_private_place
from treadle.file_versions.private_folders import make_private_folder

_DIGEST_BYTES = 20
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
_READ_FLAGS = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_PERMISSIONS = 0o7777


class ContentStore:
    """The stored contents. Its methods block."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: set[str] = set()
        """Folders that were created."""

    def put(self, data: bytes, *, durable: bool) -> str:
        """Store content and return its digest. Durable: it survives a power failure from now on."""
        digest = make_digest(data)
        path = self._place(digest)
        if path.exists():
            return digest
        self._make_folder(path.parent)
        temporary = path.parent / f".{secrets.token_hex(8)}.tmp"
        descriptor = os.open(temporary, _CREATE_FLAGS, 0o600)
        try:
            with open(descriptor, "wb") as file:
                file.write(data)
                if durable:
                    file.flush()
                    os.fsync(descriptor)
            temporary.rename(path)
        except BaseException:
            with suppress(OSError):
                temporary.unlink()
            raise
        return digest

    def read(self, digest: str) -> bytes | None:
        """Return content, or None if it is not stored or is damaged."""
        try:
            data = self._place(digest).read_bytes()
        except (OSError, ValueError):
            return None
        return data if make_digest(data) == digest else None

    def forget(self) -> None:
        """Forget which folders exist: another process may have removed them."""
        self._known.clear()

    def sweep(self, used: Collection[str]) -> None:
        """Delete the contents that are not used."""
        self.forget()
        with suppress(FileNotFoundError):
            for folder in list(self._folder.iterdir()):
                for file in list(folder.iterdir()):
                    if file.name not in used:
                        file.unlink(missing_ok=True)
                with suppress(OSError):  # it is not empty
                    folder.rmdir()

    def _place(self, digest: str) -> Path:
        if not digest.isalnum():
            raise ValueError("not a digest of content")
        return self._folder / digest[:2] / digest

    def _make_folder(self, folder: Path) -> None:
        if str(folder) not in self._known:
            make_private_folder(folder)
            self._known.add(str(folder))


def make_digest(data: bytes) -> str:
    return blake2b(data, digest_size=_DIGEST_BYTES).hexdigest()


def describe_data(data: bytes, mode: int) -> FileVersion:
    """Return the version of a file that is about to be written."""
    return FileVersion("file", make_digest(data), len(data), stat.S_IMODE(mode))


def describe_open_file(
    descriptor: int, path: str, store: ContentStore | None, *, durable: bool = False
) -> FileVersion:
    """Return the version of an open file, and store its content if there is a store. `path` is absolute."""
    status = os.fstat(descriptor)
    mode = stat.S_IMODE(status.st_mode)
    if status.st_size > MAX_STORED_BYTES:
        return FileVersion("file", _describe_status(status), status.st_size, mode, TOO_LARGE)
    data = _read_all(descriptor)
    if len(data) > MAX_STORED_BYTES:  # it grew
        return FileVersion("file", _describe_status(status), len(data), mode, TOO_LARGE)
    if find_private_place(path) is not None:
        return FileVersion("file", make_digest(data), len(data), mode, PRIVATE)
    digest = make_digest(data) if store is None else store.put(data, durable=durable)
    return FileVersion("file", digest, len(data), mode)


TOO_LARGE = f"larger than {MAX_STORED_BYTES // 1_000_000} MB"
PRIVATE = "a private file"
UNREADABLE = "not readable"


def describe_at(
    folder: int, name: str, path: str, store: ContentStore | None, *, durable: bool = False
) -> FileVersion | None:
    """Return what is at a name in an open folder; None if there is nothing, or nothing that can be recorded."""
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if stat.S_ISDIR(status.st_mode):
            return FileVersion("folder", mode=stat.S_IMODE(status.st_mode))
        if stat.S_ISLNK(status.st_mode):
            target = os.fsencode(os.readlink(name, dir_fd=folder))
            digest = make_digest(target) if store is None else store.put(target, durable=durable)
            return FileVersion("link", digest, len(target))
        if not stat.S_ISREG(status.st_mode):
            return None
        descriptor = os.open(name, _READ_FLAGS, dir_fd=folder)
    except FileNotFoundError:
        return None
    except OSError:
        return _describe_unreadable(folder, name)
    try:
        return describe_open_file(descriptor, path, store, durable=durable)
    except OSError:
        return _describe_unreadable(folder, name)
    finally:
        os.close(descriptor)


def _describe_unreadable(folder: int, name: str) -> FileVersion | None:
    try:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return None
    mode = stat.S_IMODE(status.st_mode)
    return FileVersion("file", _describe_status(status), status.st_size, mode, UNREADABLE)


def _describe_status(status: os.stat_result) -> str:
    return f"status:{status.st_ino}-{status.st_size}-{status.st_mtime_ns}"


def _read_all(descriptor: int) -> bytes:
    """Return the content of an open file, and return to its beginning."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    try:
        parts: list[bytes] = []
        left = MAX_STORED_BYTES + 1
        while left > 0 and (part := os.read(descriptor, min(left, 1 << 20))):
            parts.append(part)
            left -= len(part)
        return b"".join(parts)
    finally:
        os.lseek(descriptor, 0, os.SEEK_SET)
