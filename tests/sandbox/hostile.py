"""Commands that try to outlive the process that started them, and a list of the processes that are alive."""

import contextlib
import os
from pathlib import Path

from treadle.domain.permissions import SandboxMode, SandboxPolicy

MODES: tuple[SandboxMode, ...] = ("required", "off")
POLICIES = {mode: SandboxPolicy(mode) for mode in MODES}


def tree(mark: str) -> str:
    """Processes that are called `mark`: in the background, in sessions of their own, forked twice, deaf to TERM."""
    sleeper = f"exec -a {mark} sleep 1000"
    return f"""
        ({sleeper}) &
        setsid bash -c '{sleeper}' &
        (setsid bash -c '({sleeper}) & (trap "" TERM HUP INT; {sleeper}) & exit' &)
        (trap '' TERM HUP INT; {sleeper}) &
        (setsid setsid bash -c '(setsid bash -c "{sleeper}" &) ; exit' &)
        sleep 0.05
        echo ready
        {sleeper}
    """


def processes_called(mark: str) -> list[int]:
    """Those alive whose command line has the mark."""
    found: list[int] = []
    for entry in os.listdir("/proc"):
        if entry.isdigit() and int(entry) != os.getpid():
            with contextlib.suppress(OSError):
                if mark.encode() in Path(f"/proc/{entry}/cmdline").read_bytes():
                    found.append(int(entry))
    return found
