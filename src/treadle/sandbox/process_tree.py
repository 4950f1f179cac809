"""The processes below one, and ending them. For the keeper: imports nothing of ours."""

import ctypes
import os
import select
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress

LINUX = sys.platform == "linux"
CHILDREN_ARE_LISTED = os.path.exists(f"/proc/self/task/{os.getpid()}/children")
"""Not every kernel lists the children of a process; then all processes are looked at."""
PAGE = os.sysconf("SC_PAGE_SIZE")
PR_SET_PDEATHSIG, PR_SET_DUMPABLE, PR_SET_CHILD_SUBREAPER, PR_SET_NO_NEW_PRIVS = 1, 4, 36, 38


def prctl(option: int, value: int) -> None:
    if LINUX:
        ctypes.CDLL(None).prctl(option, value, 0, 0, 0)


# ── Looking ──


def children_of(pid: int) -> list[int]:
    if not CHILDREN_ARE_LISTED:
        return [child for child in _every_process() if int(_state_of(child)[1]) == pid]
    found: list[int] = []
    with suppress(OSError, ValueError):  # it is gone
        for thread in os.listdir(f"/proc/{pid}/task"):
            with open(f"/proc/{pid}/task/{thread}/children", "rb") as listed:
                found += [int(child) for child in listed.read().split()]
    return found


def below(roots: Iterable[int]) -> list[int]:
    """The given processes and everything below them."""
    tree: list[int] = []
    waiting = list(roots)
    while waiting:
        pid = waiting.pop()
        tree.append(pid)
        waiting += children_of(pid)
    return tree


def alive(pid: int) -> bool:
    return _state_of(pid)[0] not in (b"Z", b"X")


def memory_of(pids: Iterable[int]) -> int:
    """Bytes that belong to these processes alone, about: what is mapped from files is not counted."""
    pages = 0
    for pid in pids:
        with suppress(OSError, IndexError), open(f"/proc/{pid}/statm", "rb") as statm:
            fields = statm.read().split()
            pages += int(fields[1]) - int(fields[2])
    return pages * PAGE


def threads_of_this_machine() -> int:
    with open("/proc/loadavg") as load:
        return int(load.read().split()[3].partition("/")[2])


def _every_process() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()] if LINUX else []


def _state_of(pid: int) -> list[bytes]:
    """What the kernel says of a process, from its state on: the next is its parent."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as stat:
            return stat.read().rpartition(b")")[2].split()
    except OSError:
        return [b"X", b"0"]


# ── Ending ──


def send(pids: Iterable[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def send_to_groups(groups: Iterable[int], number: signal.Signals) -> None:
    """To all of a group at once: no fork escapes that, as it may escape one who goes through a list."""
    for group in groups:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(group, number)


def groups_of(pids: Iterable[int]) -> set[int]:
    """Their process groups. A command has a session of its own, so no group of it reaches beyond it."""
    groups: set[int] = set()
    for pid in pids:
        with suppress(ProcessLookupError, PermissionError):
            groups.add(os.getpgid(pid))
    return groups - {os.getpgid(0)}


def reap(into: dict[int, int]) -> bool:
    """Collect the children that have ended, with how. False when there is no child left."""
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        into[pid] = os.waitstatus_to_exitcode(status)


def wakeups() -> int:
    """A descriptor that can be read when a child has ended."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)
    signal.signal(signal.SIGCHLD, lambda number, frame: None)
    signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    return reader


def wait_for_an_end(wake: int, seconds: float) -> None:
    """Until a child has ended, or so long."""
    if select.select([wake], [], [], seconds)[0]:
        os.read(wake, 4096)
