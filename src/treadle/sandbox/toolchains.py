"""The user's programs that commands may use: the search path, the folders that hold them, and their variables.

A sandbox shows the folders read-only. What the programs cache goes to a private home."""

import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from treadle.domain.private_paths import PROJECT_NAMES, private_place
from treadle.sandbox.bubblewrap import SYSTEM

SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
SYSTEM_FOLDERS = tuple(map(Path, SYSTEM))
"""What a sandbox shows in any case."""
BINARY_FOLDERS = ("bin", "sbin", "shims")
"""Folders of programs whose parent holds the rest of them: libraries, other versions."""
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
"""Variables that name the folder of a toolchain, each with its usual place in a home."""
CACHES: Mapping[str, str] = {
    "XDG_CACHE_HOME": ".cache",
    "CARGO_HOME": ".cargo",
    "GOPATH": "go",
    "GRADLE_USER_HOME": ".gradle",
    "npm_config_cache": ".npm",
}
"""Variables that keep the caches of a toolchain in the private home, out of the folders that are read-only."""
ENVIRONMENTS = (".venv", "venv")
"""Where a project usually has its own virtual environment."""
SHARED = (
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
RUNNING = tuple(map(Path, ("/run", "/dev", "/proc", "/sys", "/var/lib", "/var/run")))
MOST_FOLDERS = 64
MOST_PROGRAMS = 2000
"""How many programs of one folder are looked at for links to elsewhere."""
_PYTHON = re.compile(r"python[0-9.]*\Z")


class Toolchains(Struct, frozen=True):
    path: str
    outside: str
    """The path without what lies in the workspace: for programs that the engine itself runs there."""
    folders: tuple[Path, ...] = ()
    """In addition to the system's own and the workspace."""
    variables: dict[str, str] = {}


def toolchains_of(user: Mapping[str, str], workspace: Path, hidden: Sequence[Path], home: str) -> Toolchains:
    """Return what commands in a workspace may use of the programs of the user with this environment.

    A program in the workspace is found only in the virtual environment that the user has activated: others may have
    written the rest. `hidden` is never shown, and `home` is the private home of commands."""
    active = _active_environment(user)
    own = active if active is not None and active.is_relative_to(workspace) else None
    entries = [_as_shown(entry) for entry in user.get("PATH", SYSTEM_PATH).split(":") if entry.startswith("/")]
    places = [entry for entry in dict.fromkeys(entries) if not entry.is_relative_to(workspace)]
    outside = ":".join(map(str, places)) or SYSTEM_PATH
    if own is not None:
        places.insert(0, own / "bin")
    variables = {name: f"{home}/{place}" for name, place in CACHES.items()}
    variables |= {name: str(root) for name, root in _roots(user)}
    if active is not None:
        variables["VIRTUAL_ENV"] = str(active)
    broad = _broad(user, workspace, hidden)
    folders: dict[Path, None] = {}
    for folder in _candidates(places, [root for _, root in _roots(user)], workspace, broad):
        is_known = any(folder.is_relative_to(known) for known in (*SYSTEM_FOLDERS, workspace, *folders, *hidden))
        if not is_known and private_place(str(folder)) is None and len(folders) < MOST_FOLDERS:
            folders[folder] = None
    return Toolchains(":".join(map(str, places)) or SYSTEM_PATH, outside, tuple(folders), variables)


def _as_shown(entry: str) -> Path:
    """A folder of the search path as a sandbox shows it: links are resolved, but for those of the system itself."""
    is_system = any(Path(entry).is_relative_to(folder) for folder in SYSTEM_FOLDERS)
    return Path(entry if is_system else os.path.realpath(entry))


def _active_environment(user: Mapping[str, str]) -> Path | None:
    """The virtual environment that the user has activated, if it is one and on the path."""
    named = user.get("VIRTUAL_ENV", "")
    on_path = f"{named}/bin" in user.get("PATH", "").split(":")
    is_one = on_path and named.startswith("/") and os.path.isfile(f"{named}/pyvenv.cfg")
    return Path(os.path.realpath(named)) if is_one else None


def _roots(user: Mapping[str, str]) -> Iterator[tuple[str, Path]]:
    home = user.get("HOME", "")
    for name, usual in ROOTS.items():
        place = user.get(name) or (f"{home}/{usual}" if home.startswith("/") and usual else "")
        if place.startswith("/") and os.path.isdir(place):
            yield name, Path(place)


def _broad(user: Mapping[str, str], workspace: Path, hidden: Sequence[Path]) -> frozenset[Path]:
    """Folders that hold much more than programs: none of them is shown as a whole."""
    home = Path(user.get("HOME") or "/")
    homes = (home, Path(os.path.realpath(home)))
    kept = [*homes, *(one / ".local" for one in homes), *(one / ".config" for one in homes), workspace, *hidden]
    above = [parent for place in (*homes, workspace, *hidden) for parent in place.parents]
    return frozenset((*kept, *above, *map(Path, SHARED)))


def _candidates(
    places: Sequence[Path], roots: Sequence[Path], workspace: Path, broad: frozenset[Path]
) -> Iterator[Path]:
    """Yield the folders that the programs need, links resolved, each as it is on disk."""
    for root in roots:
        resolved = Path(os.path.realpath(root))
        if resolved not in broad:
            yield resolved
    for place in places:
        yield from _holding(place, broad)
        for program in _links(place):
            if program.parent.name in BINARY_FOLDERS:
                yield from _holding(program.parent, broad)
            elif program.parent not in broad and not _is_project(program.parent):
                yield program.parent
    for name in ENVIRONMENTS:
        python = Path(os.path.realpath(workspace / name / "bin" / "python"))
        if _is_python(python):
            yield from _holding(python.parent, broad)


def _holding(folder: Path, broad: frozenset[Path]) -> Iterator[Path]:
    """Yield the folder to show for a folder of programs: its parent, where that is a toolchain of its own."""
    if folder.name in BINARY_FOLDERS and not _holds_more(folder.parent, broad):
        yield folder.parent
    elif not _holds_more(folder, broad) and folder.is_dir():
        yield folder


def _holds_more(folder: Path, broad: frozenset[Path]) -> bool:
    """Whether a folder holds more than programs: a home, a place for everything, or what the system runs with."""
    is_home = folder.parent in (Path("/home"), Path("/Users"))
    is_running = any(folder.is_relative_to(place) for place in RUNNING)
    return folder in broad or is_home or is_running


def _is_project(folder: Path) -> bool:
    """Whether a folder is kept under version control or holds settings with secrets: more than a program."""
    return any((folder / name).exists() for name in (".git", *PROJECT_NAMES))


def _links(folder: Path) -> Iterator[Path]:
    """Yield the programs that the links of a folder lead to."""
    try:
        with os.scandir(folder) as entries:
            for _, entry in zip(range(MOST_PROGRAMS), entries, strict=False):
                if entry.is_symlink() and _is_program(target := os.path.realpath(entry.path)):
                    yield Path(target)
    except OSError:
        return


def _is_program(path: str) -> bool:
    try:
        mode = os.stat(path).st_mode
    except OSError:
        return False
    return stat.S_ISREG(mode) and bool(mode & 0o111)


def _is_python(path: Path) -> bool:
    """Whether it is the interpreter of an installation: a workspace must not have any other folder shown."""
    if _PYTHON.match(path.name) is None or path.parent.name != "bin" or not _is_program(str(path)):
        return False
    libraries = path.parent.parent / "lib"
    return libraries.is_dir() and any(libraries.glob("python3*/os.py"))
