"""What one command may use of this machine."""

import os

from msgspec import Struct

GIB = 1024**3
MIB = 1024**2


class CommandLimits(Struct, frozen=True):
    """The keeper looks at a running command several times a second; what the kernel can limit, it limits.

    Memory is that of the whole tree of processes. The kernel's limit on address space is not used: programs
    that reserve much and use little (Java, Node, Go) do not start under it. Nor is its limit on the number of
    processes, which does not bind root and counts everything else that the user runs."""

    memory: int = 4 * GIB
    processes: int = 512
    output: int = 50_000_000
    """Bytes. A command that writes more is ended."""
    kept_output: int = MIB
    """Bytes that are kept: the head and the tail."""
    file_size: int = 4 * GIB
    open_files: int = 4096
    disk_left: int = 256 * MIB
    """A command that takes the room on the workspace's disk below this is ended."""
    temporary: int = GIB
    """Bytes of /tmp, which is memory in a sandbox, and likewise of its home."""
    shared_memory: int = 256 * MIB
    grace: float = 2.0
    """Seconds between the request to end and the end."""

    @classmethod
    def of_this_machine(cls) -> "CommandLimits":
        """Never more than half of the memory that there is."""
        half = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 2
        return cls(
            memory=min(4 * GIB, half), temporary=min(GIB, half // 4), shared_memory=min(256 * MIB, half // 8)
        )

    def of_processes(self, timeout: float) -> dict[str, int]:
        """What the kernel holds each process to, by the names of the limits.

        The time on the processors is what all of them could give until the timeout: it ends a command whose
        engine and keeper have been stopped."""
        return {
            "RLIMIT_CORE": 0,
            "RLIMIT_CPU": int(timeout + self.grace + 1) * (os.cpu_count() or 1),
            "RLIMIT_FSIZE": self.file_size,
            "RLIMIT_NOFILE": self.open_files,
        }
