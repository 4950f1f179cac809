"""The folder that a run works in, and no way out of it.

A path is walked one name at a time, each opened in the folder before it, which is held open, and never through a
link. Links are read and walked in the same way, `..` goes back to the folder that was held, and the workspace
itself has nothing above it. So whatever is swapped while the walk is under way, it ends inside or it is refused.
That needs nothing but `openat`, which Linux and macOS both have."""

import errno
import os
import re
import stat
from collections.abc import Generator, Iterable
from contextlib import AbstractContextManager, contextmanager, suppress
from difflib import get_close_matches
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from treadle.domain.private_paths import Kind
from treadle.ports.tool import ToolContext, ToolError
from treadle.tools.files.name_display import display_name
from treadle.tools.files.private_files import NO_PRIVACY, REFUSED_FOR_READING, Privacy, find_listed_places

CURRENT_FOLDER = "."
_MAX_LINKS = 40
_MAX_DEPTH = 100
"""Folders that are held open at once."""
_MAX_PATH_BYTES = 4096
_MAX_NEIGHBOURS = 2000
"""Names that are looked through for one that was meant."""
_HOME = re.compile(r"~[A-Za-z0-9_.-]*(?:/.*)?", re.DOTALL)
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
    """Where a path leads: a name in a folder that is held open."""

    folder: int
    name: str
    """`.` is the folder itself."""
    path: str
    """From the workspace, with links followed; `.` is the workspace."""
    privacy: Privacy = NO_PRIVACY

    def status(self) -> os.stat_result | None:
        """None: nothing is there."""
        try:
            return os.stat(self.name, dir_fd=self.folder, follow_symlinks=False)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise explain_os_error(error, self.path) from error

    def open(self, flags: int = os.O_RDONLY) -> int:
        """A descriptor of the regular file that is there; the caller closes it."""
        found = self.status()
        if found is None:
            raise ToolError(self._missing())
        self._must_be_a_file(found)
        try:
            descriptor = os.open(self.name, flags | _COMMON_FLAGS, dir_fd=self.folder)
        except OSError as error:
            raise explain_os_error(error, self.path) from error
        try:
            opened = os.fstat(descriptor)
            self._must_be_a_file(opened)
            self.privacy.refuse_linked(self.path, opened)
        except BaseException:
            os.close(descriptor)
            raise
        return descriptor

    def _must_be_a_file(self, found: os.stat_result) -> None:
        if stat.S_ISDIR(found.st_mode):
            raise ToolError(
                f'{display_name(self.path)} is a folder. glob(pattern="*", path=...) lists what is in it.'
            )
        if not stat.S_ISREG(found.st_mode):
            kind = _KIND_NAMES.get(stat.S_IFMT(found.st_mode), "something else")
            raise ToolError(f"{display_name(self.path)} is {kind}, not a file. Only regular files can be used.")

    def _missing(self) -> str:
        return f"{display_name(self.path)} is not there. {_suggest_neighbours(self.folder, self.name)}"


class Workspace:
    """The folder of a run, held open. See `opened`."""

    def __init__(
        self,
        root: int,
        written: tuple[str, ...],
        hidden: frozenset[tuple[int, int]],
        privacy: Privacy,
        hidden_folders: tuple[Path, ...] = (),
    ) -> None:
        self.root = root
        self.privacy = privacy
        self._written = written
        self._hidden = hidden
        self._hidden_folders = hidden_folders
        self._linked: frozenset[tuple[int, int]] | None = None

    def keeps_out_of(self, folder: int) -> bool:
        """Whether this open folder is one that no tool may look into, by whatever name it was reached."""
        return bool(self._hidden) and _identity(os.fstat(folder)) in self._hidden

    def hides(self, name: str, folder: int) -> bool:
        """Whether what goes by this name in an open folder is nothing that a tool may see."""
        if not self._hidden:
            return False
        try:
            found = os.stat(name, dir_fd=folder, follow_symlinks=False)
        except OSError:  # there is nothing to hide
            return False
        return _identity(found) in self._hidden or self._is_linked(found)

    def _is_linked(self, found: os.stat_result) -> bool:
        """Whether a file is a hard link to one in a hidden folder. They are listed when the first one is met."""
        if found.st_nlink < 2 or not stat.S_ISREG(found.st_mode):
            return False
        if self._linked is None:
            self._linked = frozenset(find_linked_files(self._hidden_folders))
        return _identity(found) in self._linked

    @contextmanager
    def place(self, path: str) -> Generator[OpenPath]:
        """Where the path leads. Its last name need not be there; the folders before it must be."""
        walk = _PathWalk(self, self._written, path)
        try:
            yield self._vetted(walk.to_the_end())
        finally:
            walk.let_go()

    @contextmanager
    def place_to_write(self, path: str) -> Generator[OpenPath]:
        """The same, and folders that are missing on the way are made."""
        walk = _CreatingPathWalk(self, self._written, path)
        try:
            yield self._vetted(walk.to_the_end())
        finally:
            walk.let_go()

    @contextmanager
    def unvetted(self, path: str) -> Generator[OpenPath]:
        """Where the path leads, also if that is private: for judging it, not for opening it."""
        walk = _PathWalk(self, self._written, path)
        try:
            yield walk.to_the_end()
        finally:
            walk.let_go()

    def _vetted(self, place: OpenPath) -> OpenPath:
        self.privacy.refuse(place.path)
        return place._replace(privacy=self.privacy)

    @contextmanager
    def folder(self, path: str) -> Generator[int]:
        """A descriptor of the folder that the path leads to."""
        with self.place(path) as place:
            try:
                descriptor = os.open(place.name, OPEN_FOLDER_FLAGS, dir_fd=place.folder)
            except OSError as error:
                raise explain_os_error(error, place.path) from error
        try:
            if self.keeps_out_of(descriptor):
                raise make_hidden_error(place.path)
            yield descriptor
        finally:
            os.close(descriptor)


@contextmanager
def open_workspace(
    root: Path,
    hidden: Iterable[Path] = (),
    allowed: Iterable[str] = (),
    kinds: frozenset[Kind] = REFUSED_FOR_READING,
) -> Generator[Workspace]:
    """The workspace at this folder, for as long as the block lasts, without the hidden folders that are in it.

    `allowed` are the private places that may be used, `kinds` says which kinds of them are refused otherwise."""
    written = os.path.abspath(root)
    try:
        descriptor = os.open(written, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ToolError(f"the workspace {display_name(written)} cannot be opened: {error.strerror}.") from error
    try:
        real, folders = os.path.realpath(written), tuple(hidden)
        privacy = Privacy(real, allowed, kinds)
        workspace = Workspace(descriptor, (written, real), _find_identities(folders), privacy, folders)
        if workspace.keeps_out_of(descriptor):
            raise make_hidden_error(written)
        yield workspace
    finally:
        os.close(descriptor)


def open_call_workspace(
    context: ToolContext, kinds: frozenset[Kind] = REFUSED_FOR_READING
) -> AbstractContextManager[Workspace]:
    """The workspace of a call, with the private places that it may use."""
    allowed = (*context.approved, *find_listed_places(context.sandbox))
    return open_workspace(context.workspace, context.hidden, allowed, kinds)


def _find_identities(folders: Iterable[Path]) -> frozenset[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for folder in folders:
        with suppress(OSError):  # what is not there need not be hidden
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


def make_hidden_error(path: str) -> ToolError:
    return ToolError(f"{display_name(path)} is Treadle's own, which no tool may read or change. Leave it alone.")


def explain_os_error(error: OSError, path: str) -> ToolError:
    """What the system refused, in words."""
    what = display_name(path)
    match error.errno:
        case errno.ENOENT:
            words = f"{what} is not there. glob finds what is."
        case errno.ENOTDIR | errno.ELOOP:
            words = f"{what} is not a folder."
        case errno.EACCES | errno.EPERM:
            words = f"{what}: the system does not permit this. Use another file, or report it."
        case errno.EISDIR:
            words = f"{what} is a folder."
        case errno.ENAMETOOLONG:
            words = f"{what}: the name is too long. Use a shorter one."
        case errno.ENOSPC | errno.EDQUOT:
            words = f"{what}: there is no room left on the disk. Nothing was changed."
        case errno.EROFS:
            words = f"{what} is on a disk that can only be read."
        case _:
            words = f"{what}: {error.strerror or error}."
    return ToolError(words)


class _PathWalk:
    def __init__(self, workspace: Workspace, written: tuple[str, ...], path: str) -> None:
        self._workspace = workspace
        self._root = workspace.root
        self._written = written
        self._asked = path
        self._held: list[int] = []
        self._names: list[str] = []
        self._links = 0
        self._ahead = _split_names(self._from_the_root(_check_path(path)))

    def to_the_end(self) -> OpenPath:
        while self._ahead:
            name = self._ahead.pop()
            if name == "..":
                self._back()
            elif self._ahead:
                self._into(name)
            elif (target := self._link(name)) is not None:
                self._follow(target)
            elif self._workspace.hides(name, self._here):
                raise make_hidden_error("/".join([*self._names, name]))
            else:
                return OpenPath(self._here, name, "/".join([*self._names, name]))
        return OpenPath(self._here, CURRENT_FOLDER, "/".join(self._names) or CURRENT_FOLDER)

    def let_go(self) -> None:
        while self._held:
            os.close(self._held.pop())

    @property
    def _here(self) -> int:
        return self._held[-1] if self._held else self._root

    def _back(self) -> None:
        if not self._held:
            raise self._outside()
        os.close(self._held.pop())
        self._names.pop()

    def _into(self, name: str) -> None:
        if len(self._held) == _MAX_DEPTH:
            raise ToolError(
                f"{display_name(self._asked)} is more than {_MAX_DEPTH} folders deep. Use a shorter path."
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
        if self._workspace.keeps_out_of(descriptor):
            raise make_hidden_error("/".join(self._names))

    def _open(self, name: str) -> int:
        return os.open(name, OPEN_FOLDER_FLAGS, dir_fd=self._here)

    def _link(self, name: str) -> str | None:
        """Where a link points to; None: it is not one."""
        try:
            return os.readlink(name, dir_fd=self._here)
        except OSError:
            return None

    def _follow(self, target: str) -> None:
        self._links += 1
        if self._links > _MAX_LINKS:
            raise ToolError(f"{display_name(self._asked)} leads through links in a circle. Use another path.")
        if target.startswith("/"):
            target = self._from_the_root(target)
            self.let_go()
            self._names.clear()
        self._ahead += _split_names(target)

    def _from_the_root(self, path: str) -> str:
        """An absolute path, as it is from the workspace."""
        if not path.startswith("/"):
            return path
        for root in self._written:
            if path == root or path.startswith(f"{root.rstrip('/')}/"):
                return path[len(root) :]
        raise self._outside()

    def _outside(self) -> ToolError:
        return ToolError(
            f"{display_name(self._asked)} leads out of the workspace {display_name(self._written[0])}, and only "
            "files in it can "
            "be used. Use a path relative to the workspace."
        )


class _CreatingPathWalk(_PathWalk):
    def _open(self, name: str) -> int:
        try:
            return super()._open(name)
        except FileNotFoundError:
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=self._here)
            return super()._open(name)


def _split_names(path: str) -> list[str]:
    """The names on the way, the last one first."""
    return [name for name in reversed(path.split("/")) if name not in ("", CURRENT_FOLDER)]


def _check_path(path: str) -> str:
    if not path:
        raise ToolError('the path is empty. Name a file, relative to the workspace; "." is the workspace itself.')
    if "\0" in path:
        raise ToolError(f"{display_name(path)} holds a NUL character, which no file name can.")
    if _HOME.fullmatch(path):
        raise ToolError(
            f"{display_name(path)}: `~` is not expanded, and only the workspace can be used. Use a path relative "
            "to it; "
            f"a file that is really called so is ./{display_name(path)}."
        )
    try:
        size = len(os.fsencode(path))
    except UnicodeEncodeError:
        raise ToolError(f"{display_name(path)} is not valid text, so no file is called that.") from None
    if size > _MAX_PATH_BYTES:
        raise ToolError(f"the path is {size} bytes long; at most {_MAX_PATH_BYTES} are accepted.")
    return path


def _suggest_neighbours(folder: int, name: str) -> str:
    """What might have been meant, of what stands in the same folder."""
    try:
        with os.scandir(folder) as listed:
            names = [entry.name for entry in islice(listed, _MAX_NEIGHBOURS)]
    except OSError:
        names = []
    close = get_close_matches(name[:200], names, n=3)
    if not close:
        return "glob finds what is."
    return f"Beside it there is {', '.join(display_name(one) for one in close)}."
