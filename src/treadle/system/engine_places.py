"""Finds the places from which this process and its helpers load code, and the places that a run can write."""

import os
import site
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from treadle.domain.permissions import SandboxPolicy
from treadle.domain.writable_places import EnginePlaces, WritablePlaces, is_within
from treadle.system.helper_process import PACKAGE_ROOT, list_interpreters

ENVIRONMENT_FILE = "pyvenv.cfg"
_LIBRARY_FOLDERS = ("lib", sys.platlibdir)
_MAX_LINKS = 40


def list_engine_places() -> EnginePlaces:
    """Return the places of this interpreter and of this package, whether they exist or not."""
    prefixes = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}
    environments = {prefix for prefix in prefixes if os.path.exists(os.path.join(prefix, ENVIRONMENT_FILE))}
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    libraries = {os.path.join(prefix, folder, version) for prefix in prefixes for folder in _LIBRARY_FOLDERS}
    installed = {
        entry for entry in sys.path if any(is_within(entry, prefix) and entry != prefix for prefix in prefixes)
    }
    packages = {*site.getsitepackages(), *_list_user_sites(), str(PACKAGE_ROOT / "treadle")}
    code = {*environments, *libraries, *installed, *packages, *list_interpreters(), os.path.dirname(os.__file__)}
    held = prefixes - environments
    roots = {str(PACKAGE_ROOT), str(Path(msgspec.__file__).parents[1])}
    steps = [list_path_steps(path) for path in (*code, *held, *roots)]
    links = {os.path.dirname(link) for each in steps for link in each[:-1]} - {"/"}
    return EnginePlaces(code=_resolve(code), holders=_resolve({*held, *links}), roots=_resolve(roots))


def _list_user_sites() -> list[str]:
    return [site.getusersitepackages()] if site.ENABLE_USER_SITE else []


def _resolve(paths: Iterable[str]) -> tuple[str, ...]:
    return tuple(sorted(set(map(os.path.realpath, paths))))


def list_path_steps(path: str | Path) -> tuple[str, ...]:
    """Return every place that decides where a path leads: each link on the way, at its own resolved place, and the
    target at last."""
    return tuple(dict.fromkeys(_follow(os.path.abspath(path))))


def _follow(path: str) -> Iterator[str]:
    names = [name for name in reversed(path.split("/")) if name]
    current, links = "/", 0
    while names:
        name = names.pop()
        if name in ("", "."):
            continue
        if name == "..":
            current = os.path.dirname(current)
            continue
        step = os.path.join(current, name)
        target = _read_link(step) if links < _MAX_LINKS else None
        if target is None:
            current = step
            continue
        yield step
        links += 1
        current = "/" if target.startswith("/") else current
        names += [each for each in reversed(target.split("/")) if each]
    yield current


def _read_link(path: str) -> str | None:
    try:
        return os.readlink(path)
    except OSError:
        return None


def find_writable_places(workspace: Path, policy: SandboxPolicy, protected: Iterable[str]) -> WritablePlaces:
    """Return what the commands and file tools of an agent can write. `protected` are the places of the engine and
    its home."""
    named = [os.path.realpath(Path(name).expanduser()) for name in policy.writable]
    return WritablePlaces(tuple(dict.fromkeys((os.path.realpath(workspace), *named))), tuple(protected))
