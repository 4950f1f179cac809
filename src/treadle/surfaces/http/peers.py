"""Decides which processes may connect to the Unix socket: never one that a tool started.

A command without a sandbox runs as the engine's own user, so the user id is not sufficient. Two facts are. First,
its ancestors: all commands are descendants of the broker, a subreaper, so double forks and new sessions stay below
it. Second, restrictions that no process can remove and that every child inherits: commands run with `no_new_privs`
and under a seccomp filter, and keep both when the broker is killed. If neither can be determined, the connection
is refused."""

import os
import select
import socket
import struct
import sys
from contextlib import suppress

BROKER_MODULE = b"treadle.sandbox.broker"
"""Part of the command line of the broker and of its forks."""
_SO_PEERPIDFD = 77
_MAX_ANCESTORS = 1000
MAX_TRIES = 3
"""How many times the ancestors are read while processes among them end."""


def read_peer_credentials(connection: socket.socket) -> tuple[int, int]:
    """Return the process and the user at the other end. Where the system does not report them, return 0 and this
    user: there the permissions of the socket file must be sufficient."""
    if not hasattr(socket, "SO_PEERCRED"):
        return 0, os.getuid()
    size = struct.calcsize("3i")
    pid, uid, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return pid, uid


def find_refusal_reason(connection: socket.socket) -> str | None:
    """Return why the process at the other end may not control the engine, or None if it may."""
    pid, _ = read_peer_credentials(connection)
    if sys.platform != "linux" or pid in (0, os.getpid()):  # 0: outside this container, so not started by a tool
        return None
    descriptor = _open_process(connection, pid)
    if descriptor is None:
        return f"process {pid} has ended"
    try:
        for _ in range(MAX_TRIES):
            try:
                reason = _judge_process(pid)
            except OSError:
                continue
            # The process existed all the time, so the data is about it and not about a later one with its id.
            return f"process {pid} has ended" if select.select([descriptor], [], [], 0)[0] else reason
    finally:
        os.close(descriptor)
    return f"process {pid} or one above it cannot be read in /proc"


def _open_process(connection: socket.socket, pid: int) -> int | None:
    """Return a descriptor of the process itself, whose id may be reused when it ends, or None if it has ended."""
    try:
        size = struct.calcsize("i")
        (descriptor,) = struct.unpack("i", connection.getsockopt(socket.SOL_SOCKET, _SO_PEERPIDFD, size))
        return descriptor
    except OSError:  # an older kernel, or it has ended
        with suppress(OSError):
            return os.pidfd_open(pid)
    return None


def _judge_process(pid: int) -> str | None:
    """Return why a process is refused, or None. Raise OSError if a process ended meanwhile."""
    own_ancestors = set(_find_ancestors(os.getpid()))
    for ancestor in _find_ancestors(pid):
        if ancestor in own_ancestors:  # from here on both have the same ancestors
            break
        if BROKER_MODULE in _read_proc(ancestor, "cmdline").split(b"\0"):
            return f"process {pid} was started by a tool"
    theirs, ours = _read_restrictions(pid), _read_restrictions(os.getpid())
    if any(restriction > own_restriction for restriction, own_restriction in zip(theirs, ours, strict=True)):
        return f"process {pid} has the restrictions of a process that a tool started"
    return None


def _find_ancestors(pid: int) -> list[int]:
    """Return a process and its ancestors."""
    found: list[int] = []
    while pid > 0 and len(found) < _MAX_ANCESTORS:
        found.append(pid)
        pid = int(_read_proc(pid, "stat").rpartition(b")")[2].split()[1])
    return found


def _read_restrictions(pid: int) -> tuple[int, int]:
    """Return whether a process has set `no_new_privs`, and its number of seccomp filters."""
    fields: dict[bytes, bytes] = {}
    for line in _read_proc(pid, "status").splitlines():
        name, _, value = line.partition(b":")
        fields[name] = value
    return int(fields.get(b"NoNewPrivs", b"0")), int(fields.get(b"Seccomp_filters", b"0"))


def _read_proc(pid: int, name: str) -> bytes:
    """Return a file of a process in /proc. Every user can read these files, even if the memory of the process is
    private."""
    with open(f"/proc/{pid}/{name}", "rb") as file:
        return file.read()
