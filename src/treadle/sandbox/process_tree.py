"""Process trees: listing and killing them. Used by the broker, so it imports only the standard library."""

import ctypes
import os
import select
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress

LINUX = sys.platform == "linux"
HAS_CHILDREN_FILE = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
"""Not every kernel lists the children of a process; otherwise all processes are scanned."""
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38


def prctl(option: int, value: int) -> None:
    if LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


# ── Listing ──


def list_children(pid: int) -> list[int]:
    if not HAS_CHILDREN_FILE:
        return [child for child in _list_processes() if int(_read_stat(child)[1]) == pid]
    found: list[int] = []
    with suppress(OSError, ValueError):  # the process is gone
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as listed:
                found += [int(child) for child in listed.read().split()]
    return found


def list_tree(roots: Iterable[int]) -> list[int]:
    """Return the given processes and all of their descendants."""
    tree: list[int] = []
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        tree.append(pid)
        waiting += list_children(pid)
    return tree


def is_alive(pid: int) -> bool:
    return _read_stat(pid)[0] not in (b"Z", b"X")


def measure_memory(pids: Iterable[int]) -> int:
    """Return the approximate private memory of these processes in bytes, without mapped files."""
    pages = 0
    for pid in pids:
        with suppress(OSError, IndexError), open(f"/proc/{pid}/statm", "rb") as statm:
            fields = statm.read().split()
            pages += int(fields[1]) - int(fields[2])
    return pages * PAGE_BYTES


def count_threads() -> int:
    with open("/proc/loadavg") as load:
        return int(load.read().split()[3].partition("/")[2])


def _list_processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()] if LINUX else []


def _read_stat(pid: int) -> list[bytes]:
    """Return the fields of /proc/PID/stat from the state on; the next one is the parent."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()
    except OSError:
        return [b"X", b"0"]


# ── Signals ──


def send_signal(pids: Iterable[int], signal_number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, signal_number)


def signal_groups(groups: Iterable[int], signal_number: signal.Signals) -> None:
    """Send a signal to whole process groups. Unlike a list of processes, a group cannot be escaped by forking."""
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, signal_number)


def list_groups(pids: Iterable[int]) -> set[int]:
    """Return the process groups of these processes. A command has its own session, so its groups contain no other
    processes."""
    groups: set[int] = set()
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            groups.add(os.getpgid(pid))
    return groups - {os.getpgid(0)}


def reap_children(into: dict[int, int]) -> bool:
    """Collect the exit codes of children that ended. Return False when there is no child left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        into[pid] = os.waitstatus_to_exitcode(status)


def open_child_wakeup() -> int:
    """Return a descriptor that becomes readable when a child has ended."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(signal.SIGCHLD, lambda signal_number, frame: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


def wait_for_child(wake: int, seconds: float) -> None:
    """Wait until a child has ended, or the timeout."""
    if select.select([wake], [], [], seconds)[0]:
        os.read(wake, 4096)
