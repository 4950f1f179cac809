"""The branch of a git working tree, and whether its files differ from what is committed.

The files of git are read; no program is started, because settings of a repository can make git run others.
Untracked files do not count."""

import os
import stat
import struct
from collections.abc import Iterator
from hashlib import sha1
from pathlib import Path

from msgspec import Struct

MAX_INDEX_BYTES = 64 * 1024 * 1024
MAX_HASHED_BYTES = 4 * 1024 * 1024
"""Files whose time differs are compared by their content, up to this size in all."""
_HEADER = struct.Struct(">4sII")
_ENTRY = struct.Struct(">IIIIIIIIII20sH")
_EXTENDED, _GITLINK, _SYMLINK = 0x4000, 0o160000, 0o120000
_ASSUME_VALID, _SKIP_WORKTREE = 0x8000, 0x4000
_ID_BYTES = 20


class GitState(Struct, frozen=True):
    branch: str
    """The branch, or the beginning of the commit of a detached HEAD."""
    is_dirty: bool = False
    """A tracked file differs from the index, or the index from the commit."""


class _Entry(Struct, frozen=True):
    path: bytes
    mtime_ns: int
    mode: int
    size: int
    digest: bytes


def read_git_state(folder: Path) -> GitState | None:
    """Return the state of the working tree that a folder is in, or None if it is in none or cannot be read. It
    blocks for as long as it takes to look at every tracked file."""
    try:
        for top in (folder, *folder.parents):
            if (git := _find_git_folder(top)) is not None:
                return GitState(_read_branch(git), _is_dirty(top, git))
    except (OSError, ValueError, struct.error):
        return None
    return None


def _find_git_folder(top: Path) -> Path | None:
    pointer = top / ".git"
    if pointer.is_dir():
        return pointer if (pointer / "HEAD").is_file() else None
    if not pointer.is_file():
        return None
    name, _, target = pointer.read_text(errors="replace")[:4096].partition(":")
    return (top / target.strip()).resolve() if name == "gitdir" else None


def _read_branch(git: Path) -> str:
    head = (git / "HEAD").read_text(errors="replace")[:4096].strip()
    name = head.removeprefix("ref: ")
    return name.removeprefix("refs/heads/") if name != head else head[:8]


def _is_dirty(top: Path, git: Path) -> bool:
    index = git / "index"
    if not index.is_file() or index.stat().st_size > MAX_INDEX_BYTES:
        return False
    data, budget = index.read_bytes(), MAX_HASHED_BYTES
    signature, version, count = _HEADER.unpack_from(data)
    if signature != b"DIRC" or version not in (2, 3):
        return False
    end = _HEADER.size
    for entry, stop in _list_entries(data, count):
        end = stop
        if entry.mode & 0o170000 in (_GITLINK, _SYMLINK):
            continue
        path = os.path.join(os.fsencode(top), entry.path)
        try:
            found = os.lstat(path)
        except FileNotFoundError:
            return True
        if found.st_size != entry.size or not stat.S_ISREG(found.st_mode):
            return True
        if found.st_mtime_ns == entry.mtime_ns:
            continue
        budget -= found.st_size
        if budget < 0 or _hash_file(path) != entry.digest:
            return True
    return _has_staged_changes(data[end:-_ID_BYTES])


def _list_entries(data: bytes, count: int) -> Iterator[tuple[_Entry, int]]:
    """Yield the entries of an index, each with the place where it ends. Entries that git does not compare with
    files are left out, except their ends."""
    at = _HEADER.size
    for _ in range(count):
        _, _, seconds, nanoseconds, _, _, mode, _, _, size, digest, flags = _ENTRY.unpack_from(data, at)
        start, more = at + _ENTRY.size, 0
        if flags & _EXTENDED:
            (more,) = struct.unpack_from(">H", data, start)
            start += 2
        stop = data.index(b"\0", start)
        at += (stop - at + 8) // 8 * 8
        if flags & _ASSUME_VALID or more & _SKIP_WORKTREE:
            mode = _GITLINK
        yield _Entry(data[start:stop], seconds * 10**9 + nanoseconds, mode, size, digest), at


def _hash_file(path: bytes) -> bytes:
    with open(path, "rb") as file:
        content = file.read()
    return sha1(b"blob %d\0" % len(content) + content, usedforsecurity=False).digest()


def _has_staged_changes(extensions: bytes) -> bool:
    """Return whether the index was changed since it was last equal to a tree: then it forgets the id of that."""
    at = 0
    while at + 8 <= len(extensions):
        name, (size,) = extensions[at : at + 4], struct.unpack_from(">I", extensions, at + 4)
        if name == b"TREE":
            root = extensions[at + 8 : at + 8 + size]
            return root[: root.find(b"\n")].lstrip(b"\0").startswith(b"-1")
        at += 8 + size
    return False
