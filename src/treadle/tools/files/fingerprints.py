"""Binds a call that changes files to what they contained when the call was shown.

A fingerprint is taken before a reviewer is asked, or before a call starts that needs no approval. Once the files
are locked, they are compared with it. Nothing is read in a private place."""

import os
import stat
from collections.abc import Sequence
from hashlib import blake2b

from treadle.domain.file_fingerprints import FileFingerprint
from treadle.ports.tool import ToolError
from treadle.tools.files.atomic_write import WriteTarget
from treadle.tools.files.name_display import display_name
from treadle.tools.files.text import read_bytes
from treadle.tools.files.workspace import OpenPath, OpenWorkspace

MAX_DIGESTED_BYTES = 8_000_000
"""A larger file is identified by its status."""
_CONTENT, _STATUS = "content:", "status:"
_DIGEST_BYTES = 16


def take_fingerprints(workspace: OpenWorkspace, paths: Sequence[str]) -> tuple[FileFingerprint, ...]:
    """Return what the files at these paths contain. A path that cannot be used is left out: the tool refuses it."""
    found: dict[str, FileFingerprint] = {}
    for path in paths:
        try:
            resolved = workspace.resolve_to_write(path)
            found[resolved] = FileFingerprint(resolved, _find_state(workspace, path))
        except ToolError:
            continue
    return tuple(found.values())


def refuse_changed(workspace: OpenWorkspace, paths: Sequence[str], shown: Sequence[FileFingerprint]) -> None:
    """Raise ToolError if a file changed since the call was shown. Nothing is locked."""
    if not shown:
        return
    states = {each.path: each.state for each in shown}
    for path in paths:
        resolved = workspace.resolve_to_write(path)
        if resolved not in states:
            raise _make_error(path, "it leads to another file")
        expected = states[resolved]
        _compare(resolved, expected, _find_state(workspace, path, expected))


def refuse_changed_target(
    target: WriteTarget, shown: Sequence[FileFingerprint], written: bytes | None = None
) -> None:
    """Raise ToolError if a locked file changed since the call was shown, unless it contains what is to be written:
    then the call is being repeated."""
    if not shown:
        return
    expected = next((each for each in shown if each.path == target.path), None)
    if expected is None:
        raise _make_error(target.path, "it leads to another file")
    if written is not None and target.status is not None and target.status.st_size == len(written):
        assert target.descriptor is not None
        if _read_all(target.descriptor, len(written)) == written:
            return
    now = None if target.descriptor is None else _describe(target.descriptor, expected.state)
    _compare(target.path, expected.state, now)


def _find_state(workspace: OpenWorkspace, path: str, like: str | None = None) -> str | None:
    """Return the state of the file at a path, in the form of another state."""
    try:
        with workspace.locate_unvetted(path) as place:
            return _describe_place(workspace, place, like)
    except ToolError as error:
        if isinstance(error.__cause__, FileNotFoundError):  # its folder is missing
            return None
        raise


def _describe_place(workspace: OpenWorkspace, place: OpenPath, like: str | None) -> str | None:
    status = place.status()
    if status is None:
        return None
    if not stat.S_ISREG(status.st_mode) or workspace.is_private(place):
        return _describe_status(status)
    descriptor = place.open()
    try:
        return _describe(descriptor, like)
    finally:
        os.close(descriptor)


def _describe(descriptor: int, like: str | None) -> str:
    """Return the state of an open file, in the form of another state."""
    status = os.fstat(descriptor)
    is_large = status.st_size > MAX_DIGESTED_BYTES
    if (like is None and is_large) or (like is not None and like.startswith(_STATUS)):
        return _describe_status(status)
    if is_large:
        return _STATUS
    content = _read_all(descriptor, MAX_DIGESTED_BYTES + 1)
    return _CONTENT + blake2b(content, digest_size=_DIGEST_BYTES).hexdigest()


def _describe_status(status: os.stat_result) -> str:
    facts = f"{status.st_ino} {status.st_size} {status.st_mtime_ns} {status.st_ctime_ns}"
    return _STATUS + blake2b(facts.encode(), digest_size=_DIGEST_BYTES).hexdigest()


def _read_all(descriptor: int, most: int) -> bytes:
    """Read an open file from its beginning, and return to it."""
    os.lseek(descriptor, 0, os.SEEK_SET)
    try:
        return read_bytes(descriptor, most)
    finally:
        os.lseek(descriptor, 0, os.SEEK_SET)


def _compare(path: str, expected: str | None, now: str | None) -> None:
    if now == expected:
        return
    if expected is None:
        raise _make_error(path, "there was no such file")
    raise _make_error(path, "" if now is not None else "it was removed")


def _make_error(path: str, detail: str) -> ToolError:
    what = f" ({detail})" if detail else ""
    return ToolError(
        f"{display_name(path)} changed since it was shown{what}, so nothing was written. Read it again, and make "
        "the change for what it contains now."
    )
