"""What the process that becomes a command gives up first. For the keeper: imports the standard library alone."""

import ctypes
import os
import struct
from collections.abc import Iterable, Iterator
from contextlib import suppress

_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER = 22, 2
_KEYCTL = {"x86_64": 250, "aarch64": 219}
_JOIN_SESSION_KEYRING = 1
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
"""The same on every machine."""
_VERSION_FLAG, _PATH_BENEATH = 1, 1
_OLDEST_LANDLOCK = 3
"""Older ones forbid moving files between folders, or cannot forbid truncating them."""
_EXECUTE, _WRITE, _READ, _READ_DIR, _TRUNCATE = 1 << 0, 1 << 1, 1 << 2, 1 << 3, 1 << 14
_OF_FILES = _EXECUTE | _WRITE | _READ | _TRUNCATE
_ALL = (1 << 15) - 1


def join_new_keyring() -> None:
    """Leave the session keyring of the engine's user for an empty one."""
    number = _KEYCTL.get(os.uname().machine)
    if number is not None:
        _syscall(number, ctypes.c_int(_JOIN_SESSION_KEYRING), None)


def install_filter(program: bytes) -> None:
    """Hold this process, and all below it, to a seccomp filter. Needs PR_SET_NO_NEW_PRIVS."""
    kept = ctypes.create_string_buffer(program, len(program))
    described = struct.pack("HxxxxxxP", len(program) // 8, ctypes.addressof(kept))
    ctypes.CDLL(None).prctl(_PR_SET_SECCOMP, _SECCOMP_MODE_FILTER, described, 0, 0)


def landlock_version() -> int:
    """Return the version of Landlock; 0 or less where the kernel has none."""
    return _syscall(_CREATE_RULESET, None, ctypes.c_size_t(0), ctypes.c_uint32(_VERSION_FLAG))


def deny(places: Iterable[str], workspace: str) -> bool:
    """Take from this process, and all below it, the right to open anything in these places, where the kernel has
    Landlock; return whether that was done. Needs PR_SET_NO_NEW_PRIVS.

    Landlock only grants: everything beside the way to a denied place is granted. So nothing new can be made in the
    folders on that way themselves, and a place inside the workspace cannot be denied."""
    denied = [place for place in map(os.path.realpath, places) if not _is_within(place, workspace)]
    if not denied or landlock_version() < _OLDEST_LANDLOCK:
        return False
    ruleset = _syscall(_CREATE_RULESET, struct.pack("=Q", _ALL), ctypes.c_size_t(8), ctypes.c_uint32(0))
    if ruleset < 0:
        return False
    try:
        _grant(ruleset, "/", _READ_DIR)
        for place in (workspace, *_beside(denied)):
            _grant(ruleset, place, _ALL)
        return _syscall(_RESTRICT_SELF, ctypes.c_int(ruleset), ctypes.c_uint32(0)) == 0
    finally:
        os.close(ruleset)


def _beside(denied: list[str]) -> Iterator[str]:
    """Yield what lies beside the ways from the root to these places."""
    ways = {"/"}
    for place in denied:
        while place != "/":
            ways.add(place)
            place = os.path.dirname(place)
    for way in sorted(ways - set(denied)):
        with suppress(OSError):
            for name in os.listdir(way):
                entry = os.path.join(way, name)
                real = os.path.realpath(entry)
                if real not in ways and not any(_is_within(real, place) for place in denied):
                    yield entry


def _grant(ruleset: int, place: str, rights: int) -> None:
    with suppress(OSError):
        descriptor = os.open(place, os.O_PATH | os.O_CLOEXEC)
        try:
            if not os.path.isdir(place):
                rights &= _OF_FILES
            rule = struct.pack("=Qi", rights, descriptor)
            _syscall(_ADD_RULE, ctypes.c_int(ruleset), ctypes.c_int(_PATH_BENEATH), rule, ctypes.c_uint32(0))
        finally:
            os.close(descriptor)


def _is_within(place: str, folder: str) -> bool:
    return place == folder or place.startswith(f"{folder.rstrip('/')}/")


def _syscall(number: int, *arguments: object) -> int:
    return ctypes.CDLL(None, use_errno=True).syscall(ctypes.c_long(number), *arguments)
