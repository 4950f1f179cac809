"""Keeping a process that holds secrets out of the sight of others."""

import ctypes
import resource
import sys

_PR_SET_DUMPABLE = 4


def undumpable() -> None:
    """No core dump of this process, and on Linux no reading of its memory or environment by others of its user.

    Root can still read it: where the engine runs as root, only the sandbox hides it from commands."""
    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
