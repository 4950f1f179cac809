"""Writes a file completely or not at all, with one writer at a time, whatever names the writers use for it.

The lock is on the open file itself (`flock`), so it covers all its names and other workers on this machine. A file
is replaced by renaming a new one over it. Readers therefore never see half of it, and a hard link to the old file,
which may be anywhere, keeps the old text: nothing outside is ever written."""

import errno
import fcntl
import os
import secrets
import stat
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager, suppress

from treadle.ports.tool import FileRecorder, ToolError
from treadle.tools.files.name_display import display_name
from treadle.tools.files.path_errors import explain_os_error
from treadle.tools.files.workspace import CURRENT_FOLDER, OpenPath, OpenWorkspace

_MAX_TRIES = 1000
"""How many times to try a file that another program is writing. Each try waits. On a busy machine, where that
program is slower, a try takes longer too."""
_PAUSE_SECONDS = 0.01
_MAX_STEM_CHARACTERS = 60
_PERMISSIONS = 0o777
_CREATE_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC


class WriteTarget:
    """A locked file, or a path where no file exists yet."""

    def __init__(self, place: OpenPath, descriptor: int | None, recorder: FileRecorder) -> None:
        self.path = place.path
        self.descriptor = descriptor
        self._place = place
        self._recorder = recorder
        self._has_changed = False

    @property
    def status(self) -> os.stat_result | None:
        return None if self.descriptor is None else os.fstat(self.descriptor)

    def describe_hard_links(self) -> str:
        """Return a sentence about the file's other names, with a leading space, or "" if it has none."""
        others = 0 if self.status is None else self.status.st_nlink - 1
        return f" It has {others} other name(s) by hard link; those keep the old text." if others > 0 else ""

    def _record(self, data: bytes | None, mode: int) -> None:
        """Record what the file contains now, before it is replaced or removed."""
        if not self._has_changed:
            self._recorder.record_write(self.path, self.descriptor, data, mode)
            self._has_changed = True
            return
        descriptor = None if self._place.status() is None else self._place.open()
        try:
            self._recorder.record_write(self.path, descriptor, data, mode)
        finally:
            if descriptor is not None:
                os.close(descriptor)

    def remove(self) -> None:
        """Remove the file from its folder."""
        try:
            self._record(None, 0)
            os.unlink(self._place.name, dir_fd=self._place.folder)
        except OSError as error:
            raise explain_os_error(error, self.path) from error

    def replace(self, data: bytes, like: "WriteTarget | None" = None) -> None:
        """Replace the file with this data, keeping its permissions. A new file can get those of another one."""
        folder, name = self._place.folder, self._place.name
        status = self.status if like is None else like.status
        temporary = f".{name[:_MAX_STEM_CHARACTERS]}.{secrets.token_hex(6)}.tmp"
        try:
            descriptor = os.open(temporary, _CREATE_FLAGS, 0o666 if status is None else 0o600, dir_fd=folder)
        except OSError as error:
            raise explain_os_error(error, self.path) from error
        try:
            with open(descriptor, "wb") as stream:
                stream.write(data)
                stream.flush()
                _keep_permissions(descriptor, status)
                os.fsync(descriptor)
                self._record(data, os.fstat(descriptor).st_mode)
            os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        except BaseException as error:
            with suppress(OSError):
                os.unlink(temporary, dir_fd=folder)
            if isinstance(error, OSError):
                raise explain_os_error(error, self.path) from error
            raise


@contextmanager
def lock_for_writing(workspace: OpenWorkspace, path: str) -> Generator[WriteTarget]:
    """Open the file at this path and lock it against other writers. Create missing folders."""
    for _ in range(_MAX_TRIES):
        with ExitStack() as held:
            place = held.enter_context(workspace.locate_to_write(path))
            if place.name == CURRENT_FOLDER:
                raise ToolError(f"{display_name(place.path)} is a folder. Name a file.")
            if place.status() is None:
                yield WriteTarget(place, None, workspace.recorder)
                return
            descriptor = _open_for_locking(place)
            held.callback(os.close, descriptor)
            if _try_lock(descriptor) and _is_same_file(place, descriptor):
                yield WriteTarget(place, descriptor, workspace.recorder)
                return
        time.sleep(_PAUSE_SECONDS)
    raise ToolError(f"{display_name(path)} is being written by another program. Try again in a moment.")


def _open_for_locking(place: OpenPath) -> int:
    """Open the file for writing, so that the system checks permissions. The data goes to a new file."""
    try:
        return place.open(os.O_RDWR)
    except ToolError as refused:
        cause = refused.__cause__
        if isinstance(cause, OSError) and cause.errno == errno.ETXTBSY:  # a running program can be replaced
            return place.open()
        raise


def _try_lock(descriptor: int) -> bool:
    """Lock the file, and return whether that worked. File systems without locks let everyone write."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        return True
    return True


def _is_same_file(place: OpenPath, descriptor: int) -> bool:
    """Return whether the locked file still has this name."""
    now = place.status()
    return now is not None and os.path.samestat(now, os.fstat(descriptor))


def _keep_permissions(descriptor: int, found: os.stat_result | None) -> None:
    if found is None:
        return
    with suppress(PermissionError):
        os.fchown(descriptor, found.st_uid, found.st_gid)
    os.fchmod(descriptor, stat.S_IMODE(found.st_mode) & _PERMISSIONS)
