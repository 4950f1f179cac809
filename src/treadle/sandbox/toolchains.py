"""The user's programs that commands may use: the search path, the folders that contain them, and their variables.

A sandbox exposes the folders read-only. Caches go to a private home."""

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from msgspec import Struct

from treadle.domain.private_paths import PROJECT_NAMES, find_private_place
from treadle.sandbox.bubblewrap import SYSTEM

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SYSTEM_FOLDERS = tuple(map(Path, SYSTEM))
"""Folders that every sandbox exposes."""
BINARY_FOLDERS = ("bin", "sbin", "shims")
"""Folders of programs whose parent contains the rest of the toolchain, such as libraries and other versions."""
ROOTS: Mapping[str, str | None] = {
    "RUSTUP_HOME": ".rustup",
    "PYENV_ROOT": ".pyenv",
    "NVM_DIR": ".nvm",
    "RBENV_ROOT": ".rbenv",
    "SDKMAN_DIR": ".sdkman",
    "ASDF_DATA_DIR": ".asdf",
    "MISE_DATA_DIR": ".local/share/mise",
    "VOLTA_HOME": ".volta",
    "GOROOT": None,
    "JAVA_HOME": None,
    "DOTNET_ROOT": None,
    "CONDA_PREFIX": None,
}
"""Variables that name the folder of a toolchain, with its default place in a home."""
CACHES: Mapping[str, str] = {
    "XDG_CACHE_HOME": ".cache",
    "CARGO_HOME": ".cargo",
    "GOPATH": "go",
    "GRADLE_USER_HOME": ".gradle",
    "npm_config_cache": ".npm",
}
"""Variables that put the caches of a toolchain into the private home, outside of the read-only folders."""
ENVIRONMENTS = (".venv", "venv")
"""Default names of a project's virtual environment."""
SHARED_FOLDERS = (
    "/opt",
    "/srv",
    "/var",
    "/mnt",
    "/media",
    "/tmp",
    "/etc",
    "/home",
    "/Users",
    "/root",
    "/run",
    "/dev",
    "/proc",
)
RUNTIME_FOLDERS = tuple(map(Path, ("/run", "/dev", "/proc", "/sys", "/var/lib", "/var/run")))
MAX_FOLDERS = 64
MAX_PROGRAMS = 2000
"""Programs of one folder that are checked for links to elsewhere."""
_PYTHON = re.compile(r"python[0-9.]*\Z")


class SearchPath(Struct, frozen=True):
    places: tuple[Path, ...]
    """Folders of programs, the virtual environment in the workspace first."""
    outside: str
    """The search path without the workspace, for programs that the engine itself runs there."""

    @property
    def path(self) -> str:
        return ":".join(map(str, self.places)) or SYSTEM_PATH


class Toolchains(Struct, frozen=True):
    path: str
    outside: str
    """The search path without the workspace, for programs that the engine itself runs there."""
    folders: tuple[Path, ...] = ()
    """Folders in addition to the system's own and the workspace."""
    variables: dict[str, str] = {}


def find_search_path(user: Mapping[str, str], workspace: Path) -> SearchPath:
    """Return where commands in a workspace find programs.

    Programs in the workspace are only used from the virtual environment that the user has activated, because others
    may have written the rest."""
    active = _find_active_environment(user)
    own = (active / "bin",) if active is not None and active.is_relative_to(workspace) else ()
    entries = [
        _resolve_path_entry(entry) for entry in user.get("PATH", SYSTEM_PATH).split(":") if entry.startswith("/")
    ]
    places = tuple(entry for entry in dict.fromkeys(entries) if not entry.is_relative_to(workspace))
    return SearchPath((*own, *places), outside=":".join(map(str, places)) or SYSTEM_PATH)


def find_toolchains(user: Mapping[str, str], workspace: Path, hidden: Sequence[Path], home: str) -> Toolchains:
    """Return which programs of the user commands in a workspace may use.

    `hidden` is never exposed; `home` is the private home of commands."""
    active = _find_active_environment(user)
    search = find_search_path(user, workspace)
    variables = {name: f"{home}/{place}" for name, place in CACHES.items()}
    variables |= {name: str(root) for name, root in _find_roots(user)}
    if active is not None:
        variables["VIRTUAL_ENV"] = str(active)
    broad = _list_broad_folders(user, workspace, hidden)
    folders: dict[Path, None] = {}
    for folder in _find_candidates(search.places, [root for _, root in _find_roots(user)], workspace, broad):
        is_known = any(folder.is_relative_to(known) for known in (*SYSTEM_FOLDERS, workspace, *folders, *hidden))
        if not is_known and find_private_place(str(folder)) is None and len(folders) < MAX_FOLDERS:
            folders[folder] = None
    return Toolchains(search.path, search.outside, tuple(folders), variables)


def _resolve_path_entry(entry: str) -> Path:
    """Return a folder of the search path as a sandbox exposes it: links are resolved, except those of the system
    itself."""
    is_system = any(Path(entry).is_relative_to(folder) for folder in SYSTEM_FOLDERS)
    return Path(entry if is_system else os.path.realpath(entry))


def _find_active_environment(user: Mapping[str, str]) -> Path | None:
    """Return the virtual environment that the user has activated, if it is valid and on the search path."""
    named = user.get("VIRTUAL_ENV", "")
    on_path = f"{named}/bin" in user.get("PATH", "").split(":")
    is_valid = on_path and named.startswith("/") and os.path.isfile(f"{named}/pyvenv.cfg")
    return Path(os.path.realpath(named)) if is_valid else None


def _find_roots(user: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    home = user.get("HOME", "")
    for name, default in ROOTS.items():
        place = user.get(name) or (f"{home}/{default}" if home.startswith("/") and default else "")
        if place.startswith("/") and os.path.isdir(place):
            yield name, Path(place)


def _list_broad_folders(user: Mapping[str, str], workspace: Path, hidden: Sequence[Path]) -> frozenset[Path]:
    """Return folders that contain much more than programs, which are never exposed as a whole."""
    home = Path(user.get("HOME") or "/")
    homes = (home, Path(os.path.realpath(home)))
    private = [
        *homes,
        *(each / ".local" for each in homes),
        *(each / ".config" for each in homes),
        workspace,
        *hidden,
    ]
    above = [parent for place in (*homes, workspace, *hidden) for parent in place.parents]
    return frozenset((*private, *above, *map(Path, SHARED_FOLDERS)))


def _find_candidates(
    places: Sequence[Path], roots: Sequence[Path], workspace: Path, broad: frozenset[Path]
) -> Iterator[Path]:
    """Yield the folders that the programs need, with links resolved."""
    for root in roots:
        resolved = Path(os.path.realpath(root))
        if resolved not in broad:
            yield resolved
    listed: set[str] = set()
    for place in places:
        yield from _find_containing_folder(place, broad)
        resolved_place = os.path.realpath(place)
        if resolved_place in listed:  # such as /bin, a link to /usr/bin
            continue
        listed.add(resolved_place)
        for folder in map(Path, _list_linked_folders(resolved_place)):
            if folder.name in BINARY_FOLDERS:
                yield from _find_containing_folder(folder, broad)
            elif folder not in broad and not _is_project(folder):
                yield folder
    for name in ENVIRONMENTS:
        python = Path(os.path.realpath(workspace / name / "bin" / "python"))
        if _is_python(python):
            yield from _find_containing_folder(python.parent, broad)


def _find_containing_folder(folder: Path, broad: frozenset[Path]) -> Iterator[Path]:
    """Yield the folder to expose for a folder of programs: its parent, if that is a toolchain of its own."""
    if folder.name in BINARY_FOLDERS and not _is_broad(folder.parent, broad):
        yield folder.parent
    elif not _is_broad(folder, broad) and folder.is_dir():
        yield folder


def _is_broad(folder: Path, broad: frozenset[Path]) -> bool:
    """Return whether a folder contains more than programs: a home, a shared folder, or runtime state."""
    is_home = folder.parent in (Path("/home"), Path("/Users"))
    is_running = any(folder.is_relative_to(place) for place in RUNTIME_FOLDERS)
    return folder in broad or is_home or is_running


def _is_project(folder: Path) -> bool:
    """Return whether a folder is under version control or contains settings with secrets."""
    return any((folder / name).exists() for name in (".git", *PROJECT_NAMES))


def _list_linked_folders(folder: str) -> Sequence[str]:
    """Return the folders of the programs that the links of a folder point to, each once: many links share one."""
    found: dict[str, None] = {}
    with suppress(OSError), os.scandir(folder) as entries:
        for _, entry in zip(range(MAX_PROGRAMS), entries, strict=False):
            if entry.is_symlink() and _is_program(target := os.path.realpath(entry.path)):
                found[os.path.dirname(target)] = None
    return tuple(found)


def _is_program(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) and bool(mode & 0o111)


def _is_python(path: Path) -> bool:
    """Return whether this is the interpreter of an installation. A workspace must not cause any other folder to be
    exposed."""
    if _PYTHON.match(path.name) is None or path.parent.name != "bin" or not _is_program(str(path)):
        return False
    libraries = path.parent.parent / "lib"
    return libraries.is_dir() and any(libraries.glob("python3*/os.py"))
