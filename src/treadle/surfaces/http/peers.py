"""Who connects to the Unix socket: never a process that a tool has started.

A command without a sandbox runs as the engine's own user, so the user id tells nothing. Two things do. First, its
ancestors: all commands are below the keeper, a subreaper, so double forks and new sessions stay below it. Second,
marks that no process can take off, and that every process inherits: commands run with `no_new_privs` and under a
seccomp filter, and keep both when the keeper is killed. Where it cannot be told, the answer is no."""

import os
import select
import socket
import struct
import sys
from contextlib import suppress

BROKER_MODULE = b"treadle.sandbox.broker"
"""Stands in the command line of the keeper and of its forks."""
_SO_PEERPIDFD = 77
_MAX_ANCESTORS = 1000
MAX_TRIES = 3
"""How often the ancestors are read while processes among them end."""


def read_peer_credentials(connection: socket.socket) -> tuple[int, int]:
    """Return the process and the user at the other end; where the system does not say, 0 and this user: there the
    rights of the socket's file, which is this user's alone, must do."""
    if not hasattr(socket, "SO_PEERCRED"):
        return 0, os.getuid()
    size = struct.calcsize("3i")
    pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return pid, uid


def find_refusal_reason(connection: socket.socket) -> str | None:
    """Return why the process at the other end may not control the engine; None where it may."""
    pid, _ = read_peer_credentials(connection)
    if sys.platform != "linux" or pid in (0, os.getpid()):  # 0: outside of this container, so not started by a tool
        return None
    held = _open_process(connection, pid)
    if held is None:
        return f"process {pid} has ended"
    try:
        for _ in range(MAX_TRIES):
            try:
                reason = _judge_process(pid)
            except OSError:
                continue
            # The process was there all the time, so what was read is about it and not about a later one.
            return f"process {pid} has ended" if select.select([held], [], [], 0)[0] else reason
    finally:
        os.close(held)
    return f"process {pid} or one above it cannot be seen in /proc"


def _open_process(connection: socket.socket, pid: int) -> int | None:
    """Return a descriptor of the process itself, whose number may be given to another when it ends; None where it
    has ended."""
    try:
        size = struct.calcsize("i")
        (descriptor,) = struct.unpack("i", connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, size))
        return descriptor
    except OSError:  # an older kernel, or it has ended
        with suppress(OSError):
            return os.pidfd_open(pid)
    return None


def _judge_process(pid: int) -> str | None:
    """Raises OSError where a process has ended meanwhile."""
    own = set(_find_ancestors(os.getpid()))
    for each in _find_ancestors(pid):
        if each in own:  # from here on both have the same ancestors
            break
        if BROKER_MODULE in _read_proc(each, "cmdline").split(b"\0"):
            return f"process {pid} was started by a tool"
    theirs, ours = _read_restrictions(pid), _read_restrictions(os.getpid())
    if any(mark > own_mark for mark, own_mark in zip(theirs, ours, strict=True)):
        return f"process {pid} bears the marks of a process that a tool has started"
    return None


def _find_ancestors(pid: int) -> list[int]:
    """Return a process and those above it."""
    found: list[int] = []
    while pid > 0 and len(found) < _MAX_ANCESTORS:
        found.append(pid)
        pid = int(_read_proc(pid, "stat").rpartition(b")")[2].split()[1])
    return found


def _read_restrictions(pid: int) -> tuple[int, int]:
    """Return whether a process has given up gaining rights, and how many filters hold it."""
    fields: dict[bytes, bytes] = {}
    for line in _read_proc(pid, "status").splitlines():
        name, _, value = line.partition(b":")
        fields[name] = value
    return int(fields.get(b"NoNewPrivs", b"0")), int(fields.get(b"Seccomp_filters", b"0"))


def _read_proc(pid: int, name: str) -> bytes:
    """Both files can be read by everybody, also those of a process whose memory is private."""
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()
