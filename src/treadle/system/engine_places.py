"""Finds the places from which this process and its helpers load code, and the places that a run can write."""

import os
import site
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from pathlib import Path

from treadle.domain.permissions import SandboxPolicy
from treadle.domain.writable_places import EnginePlaces, WritablePlaces
from treadle.system.helper_process import PACKAGE_ROOT

ENVIRONMENT_FILE = "pyvenv.cfg"
_CODE_PATHS = ("stdlib", "platstdlib", "purelib", "platlib")
_MAX_LINKS = 40


def list_engine_places() -> EnginePlaces:
    """Return the places of this interpreter and of this package, whether they exist or not."""
    prefixes = {sys.prefix, sys.exec_prefix, sys.base_prefix, sys.base_exec_prefix}
    environments = {prefix for prefix in prefixes if os.path.exists(os.path.join(prefix, ENVIRONMENT_FILE))}
    libraries = {sysconfig.get_path(name) for name in _CODE_PATHS} | {os.path.dirname(os.__file__)}
    packages = {*site.getsitepackages(), *_list_user_sites()}
    code = {*environments, *libraries, *packages, *_list_interpreters(), str(PACKAGE_ROOT / "treadle")}
    roots = {*(prefixes - environments), str(PACKAGE_ROOT)}
    steps = [list_path_steps(path) for path in (*code, *roots)]
    links = {os.path.dirname(link) for each in steps for link in each[:-1]}
    return EnginePlaces(code=_resolve(code), roots=_resolve(roots), link_folders=tuple(sorted(links - {"/"})))


def _list_user_sites() -> list[str]:
    return [site.getusersitepackages()] if site.ENABLE_USER_SITE else []


def _list_interpreters() -> list[str]:
    base: str = getattr(sys, "_base_executable", "")
    return [program for program in (sys.executable, base) if program]


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
