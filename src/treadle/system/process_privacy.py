"""Keep a process that holds secrets private: no core dump, no reading of its memory by other processes."""

import sys

_PR_SET_DUMPABLE = 4


def forbid_dumps() -> None:
    """Forbid core dumps of this process, and on Linux reading its memory and its environment to other processes of
    the same user.

    Every process that runs the engine or a command calls it, whatever the vault holds: keys of providers are in the
    environment too. Root can still read it: where the engine runs as root, only the sandbox hides it from commands.
    What others may still read of it is `/proc/PID/stat` and `/proc/PID/status`."""
    import resource

    hard = resource.getrlimit(resource.RLIMIT_CORE)[1]
    resource.setrlimit(resource.RLIMIT_CORE, (0, hard))
    if sys.platform == "linux":
        import ctypes

        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
