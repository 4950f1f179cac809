"""The folder of a run, from which no path leads out.

A path is walked one name at a time. Each name is opened relative to the folder before it, which is held open, and
never through a link. Links are read and walked in the same way, `..` returns to the folder that was held, and the
workspace has no parent. Whatever is swapped during the walk, it ends inside or is refused."""

import errno
import os
import stat
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple

from treadle.domain.private_paths import Kind
from treadle.domain.writable_places import EnginePlaces
from treadle.ports.tool import FileRecorder, NoRecorder, ToolContext, ToolError
from treadle.tools.files.name_display import display_name
from treadle.tools.files.path_errors import check_path, explain_os_error, make_hidden_error, suggest_neighbours
from treadle.tools.files.private_files import NO_PRIVACY, PRIVATE_TO_READ, Privacy, find_listed_places
from treadle.tools.files.write_protection import WriteProtection

CURRENT_FOLDER = "."
_MAX_LINKS = 40
_MAX_DEPTH = 100
"""How many folders are held open at once."""
_COMMON_FLAGS = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
OPEN_FOLDER_FLAGS = os.O_RDONLY | os.O_DIRECTORY | _COMMON_FLAGS
_KIND_NAMES = {
    stat.S_IFIFO: "a pipe",
    stat.S_IFSOCK: "a socket",
    stat.S_IFCHR: "a device",
    stat.S_IFBLK: "a device",
    stat.S_IFLNK: "a link",
}


class OpenPath(NamedTuple):
    """A resolved path: a name in a folder that is held open."""

    folder: int
    name: str
    """`.` is the folder itself."""
    path: str
    """Relative to the workspace, with links followed; `.` is the workspace."""
    privacy: Privacy = NO_PRIVACY

    def status(self) -> os.stat_result | None:
        """Return the status, or None if nothing is there."""
        try:
            return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise explain_os_error(error, self.path) from error

    def open(self, flags: int = os.O_RDONLY) -> int:
        """Return a descriptor of the regular file that is there. The caller closes it."""
        status = self.status()
        if status is None:
            raise ToolError(self._describe_missing())
        self._check_regular_file(status)
        try:
            descriptor = os.open(self.name, flags | _COMMON_FLAGS, dir_fd=self.folder)
        except OSError as error:
            raise explain_os_error(error, self.path) from error
        try:
            opened_status = os.fstat(descriptor)
            self._check_regular_file(opened_status)
            self.privacy.refuse_linked(self.path, opened_status)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _check_regular_file(self, status: os.stat_result) -> None:
        if stat.S_ISDIR(status.st_mode):
            raise ToolError(
                f'{display_name(self.path)} is a folder. glob(pattern="*", path=...) lists what is in it.'
            )
        if not stat.S_ISREG(status.st_mode):
            kind = _KIND_NAMES.get(stat.S_IFMT(status.st_mode), "something else")
            raise ToolError(f"{display_name(self.path)} is {kind}, not a file. Only regular files can be used.")

    def _describe_missing(self) -> str:
        return f"{display_name(self.path)} is not there. {suggest_neighbours(self.folder, self.name)}"


class OpenWorkspace:
    """The folder of a run, held open. See `open_workspace`."""

    def __init__(
        self,
        root: int,
        root_paths: tuple[str, ...],
        hidden: frozenset[tuple[int, int]],
        privacy: Privacy,
        protection: WriteProtection,
        hidden_folders: tuple[Path, ...] = (),
        recorder: FileRecorder | None = None,
    ) -> None:
        self.root = root
        self.recorder = recorder or NoRecorder()
        self.privacy = privacy
        self.protection = protection
        self._root_paths = root_paths
        self._hidden = hidden
        self._hidden_folders = hidden_folders
        self._linked: frozenset[tuple[int, int]] | None = None

    def is_hidden_folder(self, folder: int) -> bool:
        """Return whether no tool may access this open folder, by whatever name it was reached."""
        return bool(self._hidden) and _identity(os.fstat(folder)) in self._hidden

    def is_hidden(self, name: str, folder: int) -> bool:
        """Return whether tools may not see this name in an open folder."""
        if not self._hidden:
            return False
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:  # nothing is there
            return False
        return _identity(found) in self._hidden or self._is_linked(found)

    def _is_linked(self, found: os.stat_result) -> bool:
        """Return whether a file is a hard link to one in a hidden folder. Those are listed on first use."""
        if found.st_nlink < 2 or not stat.S_ISREG(found.st_mode):
            return False
        if self._linked is None:
            self._linked = frozenset(find_linked_files(self._hidden_folders))
        return _identity(found) in self._linked

    @contextmanager
    def locate(self, path: str) -> Generator[OpenPath]:
        """Yield where the path leads. Its last name need not exist; the folders before it must."""
        walk = _PathWalk(self, self._root_paths, path)
        try:
            yield self._vet(walk.resolve())
        finally:
            walk.close()

    @contextmanager
    def locate_to_write(self, path: str) -> Generator[OpenPath]:
        """Yield where the path leads, and create missing folders. Raise ToolError if no run may write there."""
        self.protection.refuse(self.resolve_to_write(path))
        walk = _CreatingPathWalk(self, self._root_paths, path)
        try:
            place = self._vet(walk.resolve())
            self.protection.refuse(place.path)
            yield place
        finally:
            walk.close()

    def resolve_to_write(self, path: str) -> str:
        """Return where the path leads, relative to the workspace. No part of it needs to exist."""
        walk = _PlanningPathWalk(self, self._root_paths, path)
        try:
            return walk.resolve().path
        finally:
            walk.close()

    def is_link(self, path: str) -> bool:
        """Return whether the last name of a path is a link. The folders before it must exist."""
        folder, _, name = path.rstrip("/").rpartition("/")
        with self.locate_unvetted(folder or ("/" if path.startswith("/") else CURRENT_FOLDER)) as place:
            try:
                os.readlink(f"{place.name}/{name}", dir_fd=place.folder)
            except OSError:  # something else is there, or nothing
                return False
        return True

    @contextmanager
    def locate_unvetted(self, path: str) -> Generator[OpenPath]:
        """Yield where the path leads even if that is private: for judging it, not for opening it."""
        walk = _PathWalk(self, self._root_paths, path)
        try:
            yield walk.resolve()
        finally:
            walk.close()

    def is_private(self, place: OpenPath) -> bool:
        """Return whether a place, or the file that it is a hard link to, is private."""
        if self.privacy.find_place(place.path) is not None:
            return True
        status = place.status()
        return status is not None and self.privacy.is_linked(place.path, status)

    def _vet(self, place: OpenPath) -> OpenPath:
        self.privacy.refuse(place.path)
        return place._replace(privacy=self.privacy)

    @contextmanager
    def folder(self, path: str) -> Generator[int]:
        """Yield a descriptor of the folder that the path leads to."""
        with self.locate(path) as place:
            try:
                descriptor = os.open(place.name, OPEN_FOLDER_FLAGS, dir_fd=place.folder)
            except OSError as error:
                raise explain_os_error(error, place.path) from error
        try:
            if self.is_hidden_folder(descriptor):
                raise make_hidden_error(place.path)
            yield descriptor
        finally:
            os.close(descriptor)


@contextmanager
def open_workspace(
    root: Path,
    hidden: Iterable[Path] = (),
    allowed: Iterable[str] = (),
    kinds: frozenset[Kind] = PRIVATE_TO_READ,
    engine: EnginePlaces | None = None,
    read_only: Iterable[str] = (),
    recorder: FileRecorder | None = None,
) -> Generator[OpenWorkspace]:
    """Open the workspace at this folder for the duration of the block, without its hidden folders.

    `allowed` are private places that may be used, and files that other programs execute which may be written;
    `kinds` are refused otherwise. Nothing may be written to the places of the engine."""
    absolute = os.path.abspath(root)
    try:
        descriptor = os.open(absolute, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ToolError(f"the workspace {display_name(absolute)} cannot be opened: {error.strerror}.") from error
    try:
        real, folders, places = os.path.realpath(absolute), tuple(hidden), tuple(allowed)
        privacy = Privacy(real, places, kinds)
        protection = WriteProtection(real, engine or EnginePlaces(), places, read_only)
        workspace = OpenWorkspace(
            descriptor, (absolute, real), _find_identities(folders), privacy, protection, folders, recorder
        )
        if workspace.is_hidden_folder(descriptor):
            raise make_hidden_error(absolute)
        yield workspace
    finally:
        os.close(descriptor)


def open_call_workspace(
    context: ToolContext, kinds: frozenset[Kind] = PRIVATE_TO_READ
) -> AbstractContextManager[OpenWorkspace]:
    """Open the workspace of a call, with the private places that it may use."""
    allowed = (*context.approved, *find_listed_places(context.sandbox))
    read_only = context.sandbox.read_only
    return open_workspace(
        context.workspace, context.hidden, allowed, kinds, context.engine, read_only, context.recorder
    )


def _find_identities(folders: Iterable[Path]) -> frozenset[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for folder in folders:
        with suppress(OSError):  # a missing folder need not be hidden
            found.append(_identity(os.stat(folder)))
    return frozenset(found)


def find_linked_files(folders: Iterable[Path]) -> Generator[tuple[int, int]]:
    """Yield the files in these folders that have more than one name."""
    for top in folders:
        for folder, _, names in os.walk(top):
            for name in names:
                with suppress(OSError):
                    found = os.stat(os.path.join(folder, name), follow_symlinks=False)
                    if found.st_nlink > 1 and stat.S_ISREG(found.st_mode):
                        yield _identity(found)


def _identity(found: os.stat_result) -> tuple[int, int]:
    return found.st_dev, found.st_ino


class _PathWalk:
    def __init__(self, workspace: OpenWorkspace, root_paths: tuple[str, ...], path: str) -> None:
        self._workspace = workspace
        self._root = workspace.root
        self._root_paths = root_paths
        self._path = path
        self._held: list[int] = []
        self._names: list[str] = []
        self._links = 0
        self._remaining = _split_names(self._relative_to_root(check_path(path)))

    def resolve(self) -> OpenPath:
        while self._remaining:
            name = self._remaining.pop()
            if name == "..":
                self._leave()
            elif self._remaining:
                self._enter(name)
            elif (target := self._link(name)) is not None:
                self._follow(target)
            elif self._is_hidden(name):
                raise make_hidden_error("/".join([*self._names, name]))
            else:
                return OpenPath(self._current, name, "/".join([*self._names, name]))
        return OpenPath(self._current, CURRENT_FOLDER, "/".join(self._names) or CURRENT_FOLDER)

    def close(self) -> None:
        while self._held:
            os.close(self._held.pop())

    @property
    def _current(self) -> int:
        return self._held[-1] if self._held else self._root

    def _leave(self) -> None:
        if not self._held:
            raise self._outside_error()
        os.close(self._held.pop())
        self._names.pop()

    def _enter(self, name: str) -> None:
        if len(self._held) == _MAX_DEPTH:
            raise ToolError(
                f"{display_name(self._path)} is more than {_MAX_DEPTH} folders deep. Use a shorter path."
            )
        try:
            descriptor = self._open(name)
        except OSError as error:
            if error.errno in (errno.ENOTDIR, errno.ELOOP) and (target := self._link(name)) is not None:
                self._follow(target)
                return
            raise explain_os_error(error, "/".join([*self._names, name])) from error
        self._held.append(descriptor)
        self._names.append(name)
        if self._workspace.is_hidden_folder(descriptor):
            raise make_hidden_error("/".join(self._names))

    def _open(self, name: str) -> int:
        return os.open(name, OPEN_FOLDER_FLAGS, dir_fd=self._current)

    def _is_hidden(self, name: str) -> bool:
        return self._workspace.is_hidden(name, self._current)

    def _link(self, name: str) -> str | None:
        """Return the target of a link, or None if it is not a link."""
        try:
            return os.readlink(name, dir_fd=self._current)
        except OSError:
            return None

    def _follow(self, target: str) -> None:
        self._links += 1
        if self._links > _MAX_LINKS:
            raise ToolError(f"{display_name(self._path)} leads through links in a circle. Use another path.")
        if target.startswith("/"):
            target = self._relative_to_root(target)
            self.close()
            self._names.clear()
        self._remaining += _split_names(target)

    def _relative_to_root(self, path: str) -> str:
        """Return an absolute path relative to the workspace."""
        if not path.startswith("/"):
            return path
        for root in self._root_paths:
            if path == root or path.startswith(f"{root.rstrip('/')}/"):
                return path[len(root) :]
        raise self._outside_error()

    def _outside_error(self) -> ToolError:
        return ToolError(
            f"{display_name(self._path)} leads out of the workspace {display_name(self._root_paths[0])}, and only "
            "files in it can "
            "be used. Use a path relative to the workspace."
        )


class _CreatingPathWalk(_PathWalk):
    def _open(self, name: str) -> int:
        try:
            return super()._open(name)
        except FileNotFoundError:
            path = "/".join([*self._names, name])
            self._workspace.protection.refuse_folder(path)
            self._workspace.recorder.record_folder(path)
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=self._current)
            return super()._open(name)


class _PlanningPathWalk(_PathWalk):
    """Resolves a path even where its folders are missing, and creates none."""

    _missing = 0

    def _enter(self, name: str) -> None:
        try:
            if not self._missing:
                super()._enter(name)
                return
        except ToolError as error:
            if not isinstance(error.__cause__, FileNotFoundError):
                raise
        self._missing += 1
        self._names.append(name)

    def _leave(self) -> None:
        if not self._missing:
            super()._leave()
            return
        self._missing -= 1
        self._names.pop()

    def _link(self, name: str) -> str | None:
        return None if self._missing else super()._link(name)

    def _is_hidden(self, name: str) -> bool:
        return not self._missing and super()._is_hidden(name)


def _split_names(path: str) -> list[str]:
    """Return the names of a path, the last one first."""
    return [name for name in reversed(path.split("/")) if name not in ("", CURRENT_FOLDER)]
