"""Resource limits of one command."""

import os

from msgspec import Struct

GIB = 1024**3
MIB = 1024**2


class CommandLimits(Struct, frozen=True):
    """The kernel enforces what it can; the supervisor checks the rest several times a second.

    Memory is that of the whole process tree. The kernel's limit on address space is not used, because programs that
    reserve much and use little (Java, Node, Go) would not start. Nor is its limit on the number of processes, which
    does not bind root and counts all processes of the user."""

    memory: int = 4 * GIB
    processes: int = 512
    output: int = 50_000_000
    """Bytes. A command that writes more is killed."""
    kept_output: int = MIB
    """Bytes of the output that are stored: the head and the tail."""
    file_size: int = 4 * GIB
    open_files: int = 4096
    disk_left: int = 256 * MIB
    """A command that reduces the free space on the workspace's disk below this is killed."""
    temporary: int = GIB
    """Bytes of /tmp, which is memory in a sandbox, and also of the private home."""
    shared_memory: int = 256 * MIB
    grace: float = 2.0
    """Seconds between SIGTERM and SIGKILL."""

    @classmethod
    def for_machine(cls) -> "CommandLimits":
        """Return the defaults, limited to half of the machine's memory."""
        half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
        return cls(
            memory=min(4 * GIB, half), temporary=min(GIB, half // 4), shared_memory=min(256 * MIB, half // 8)
        )

    def build_rlimits(self, timeout: float) -> dict[str, int]:
        """Return the kernel limits of each process, by name.

        The CPU time is what all processors could provide until the timeout: it ends a command whose engine and
        supervisor were stopped."""
        return {
            "RLIMIT_CORE": 0,
            "RLIMIT_CPU": int(timeout + self.grace + 1) * (os.cpu_count() or 1),
            "RLIMIT_FSIZE": self.file_size,
            "RLIMIT_NOFILE": self.open_files,
        }
