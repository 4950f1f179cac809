"""Restrictions that a process applies to itself before it becomes the command. Used by the broker, so it imports
only the standard library."""

import ctypes
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress

_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_KEYCTL = {"x86_64": 250, "aarch64": 219}
_JOIN_SESSION_KEYRING = 1
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""The same on every architecture."""
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_MIN_LANDLOCK_VERSION = 3
"""Older versions forbid moving files between folders, or cannot forbid truncating them."""
_EXECUTE, _WRITE, _READ, _READ_DIR, _TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
_FILE_RIGHTS = _EXECUTE | _WRITE | _READ | _TRUNCATE
_ALL = (1 << 15) - 1


def join_new_keyring() -> None:
    """Replace the session keyring of the engine's user with an empty one."""
    number = _KEYCTL.get(os.uname().machine)
    if number is not None:
        _syscall(number, ctypes.c_int(_JOIN_SESSION_KEYRING), None)


def install_filter(program: bytes) -> None:
    """Apply a seccomp filter to this process and its descendants. Needs PR_SET_NO_NEW_PRIVS."""
    buffer = ctypes.create_string_buffer(program, len(program))
    program_header = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(buffer))
    ctypes.CDLL(None).prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, program_header, 0, 0)


def read_landlock_version() -> int:
    """Return the version of Landlock, or 0 or less if the kernel lacks it."""
    return _syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))


def restrict_paths(denied: Iterable[str], read_only: Iterable[str], workspace: str) -> bool:
    """Deny this process and its descendants to open anything in some paths, and to change anything in others, if
    the kernel has Landlock, and return whether that was done. Needs PR_SET_NO_NEW_PRIVS.

    Landlock can only grant access, so everything except the path to a restricted place is granted. As a
    consequence, nothing can be created in the folders on that path. A place inside the workspace cannot be
    restricted, and one that contains it cannot be made read-only."""
    closed = [place for place in map(os.path.realpath, denied) if not _is_within(place, workspace)]
    kept = [
        place
        for place in map(os.path.realpath, read_only)
        if not _is_within(place, workspace) and not _is_within(workspace, place)
    ]
    if not (closed or kept) or read_landlock_version() < _MIN_LANDLOCK_VERSION:
        return False
    ruleset = _syscall(_CREATE_RULESET, struct.pack("=Q", _ALL), ctypes.c_size_t(8), ctypes.c_uint32(0))
    if ruleset < 0:
        return False
    try:
        _grant(ruleset, "/", _READ_DIR)
        for place in (workspace, *_list_siblings([*closed, *kept])):
            _grant(ruleset, place, _ALL)
        for place in kept:
            if not any(_is_within(place, each) for each in closed):
                _grant(ruleset, place, _EXECUTE | _READ | _READ_DIR)
        return _syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)) == 0
    finally:
        os.close(ruleset)


def _list_siblings(denied: list[str]) -> Iterator[str]:
    """Yield the entries next to the paths from the root to these places."""
    ancestors = {"/"}
    for place in denied:
        while place != "/":
            ancestors.add(place)
            place = os.path.dirname(place)
    for ancestor in sorted(ancestors - set(denied)):
        with suppress(OSError):
            for name in os.listdir(ancestor):
                entry = os.path.join(ancestor, name)
                real = os.path.realpath(entry)
                if real not in ancestors and not any(_is_within(real, place) for place in denied):
                    yield entry


def _grant(ruleset: int, place: str, rights: int) -> None:
    with suppress(OSError):
        descriptor = os.open(place, os.O_PATH | os.O_CLOEXEC)
        try:
            if not os.path.isdir(place):
                rights &= _FILE_RIGHTS
            rule = struct.pack("=Qi", rights, descriptor)
            _syscall(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint32(0))
        finally:
            os.close(descriptor)


def _is_within(place: str, folder: str) -> bool:
    return place == folder or place.startswith(f"{folder.rstrip('/')}/")


def _syscall(number: int, *arguments: object) -> int:
    return ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), *arguments)
