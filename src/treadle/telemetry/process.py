"""Resource usage of this process: memory, processor time, open files."""

import os
import resource
import sys
from pathlib import Path

from treadle.telemetry.exposition import Family

_STATUS = Path("/proc/self/statm")
_FILES = Path("/proc/self/fd")


class ProcessFamilies:
    """Process metrics under the names that every Prometheus client uses, so that common dashboards show them."""

    def __init__(self, started_at: float) -> None:
        self._memory = Family("process_resident_memory_bytes", "Memory held, in bytes.", kind="gauge")
        self._time = Family("process_cpu_seconds_total", "Processor time used, in seconds.")
        self._open = Family("process_open_fds", "Open files.", kind="gauge")
        self._most = Family("process_max_fds", "Files that may be open.", kind="gauge")
        started = Family("process_start_time_seconds", "When it was started, in seconds since 1970.", kind="gauge")
        started.set(started_at)
        self.families = (self._memory, self._time, self._open, self._most, started)

    def update(self) -> None:
        """Read the current values."""
        used = resource.getrusage(resource.RUSAGE_SELF)
        self._memory.set(_read_resident_bytes(used.ru_maxrss))
        self._time.set(used.ru_utime + used.ru_stime)
        self._most.set(float(resource.getrlimit(resource.RLIMIT_NOFILE)[0]))
        self._open.set(float(_count_open_files()))


def _read_resident_bytes(most: int) -> float:
    try:
        return float(int(_STATUS.read_text().split()[1]) * resource.getpagesize())
    except OSError:  # not on Linux: use the peak instead
        return float(most if sys.platform == "darwin" else most * 1024)


def _count_open_files() -> int:
    try:
        return len(os.listdir(_FILES if _FILES.exists() else "/dev/fd"))
    except OSError:
        return 0
