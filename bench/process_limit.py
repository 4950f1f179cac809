"""Limits each process to a share of a core, so that two of them fit on any machine.

The limit is that of a control group of the CPU controller (version 1 or 2). Without the right to make one,
processes are stopped and continued in turns."""

import os
import signal
import threading
import time
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

from bench.pgserver import read_cpu_seconds

PERIOD_SECONDS = 0.05
ROOTS = (Path("/sys/fs/cgroup/cpu"), Path("/sys/fs/cgroup"))


@contextmanager
def limit_processes(pids: Sequence[int], share: float) -> Generator[str, None, None]:
    """Limit each process and its threads to this share of a core during the block. Yield how."""
    folders = list[Path]()
    try:
        try:
            for pid in pids:
                folders.append(_make_group(pid, share))
        except OSError:
            with _take_turns(pids, share):
                yield "stopped and continued in turns"
        else:
            yield "a control group for each process"
    finally:
        for folder in folders:
            _remove_group(folder)


def _make_group(pid: int, share: float) -> Path:
    """Return the control group of a process, which it has been moved to."""
    root = next((each for each in ROOTS if (each / "cgroup.procs").exists()), ROOTS[0])
    folder = root / f"treadle-bench-{pid}"
    folder.mkdir()
    period, quota = int(PERIOD_SECONDS * 1e6), int(share * PERIOD_SECONDS * 1e6)
    if (folder / "cpu.max").exists():
        (folder / "cpu.max").write_text(f"{quota} {period}")
    else:
        (folder / "cpu.cfs_period_us").write_text(str(period))
        (folder / "cpu.cfs_quota_us").write_text(str(quota))
    (folder / "cgroup.procs").write_text(str(pid))
    return folder


def _remove_group(folder: Path) -> None:
    """Move the processes of a group back, and remove it."""
    with suppress(OSError):
        for pid in (folder / "cgroup.procs").read_text().split():
            (folder.parent / "cgroup.procs").write_text(pid)
        folder.rmdir()


@contextmanager
def _take_turns(pids: Sequence[int], share: float) -> Generator[None, None, None]:
    """Stop each process for the rest of a period when it has used its share."""
    ended = threading.Event()

    def control(pid: int) -> None:
        with suppress(ProcessLookupError, FileNotFoundError):
            began, used = time.monotonic(), read_cpu_seconds(pid)
            while not ended.wait(PERIOD_SECONDS / 10):
                behind = (read_cpu_seconds(pid) - used) / share - (time.monotonic() - began)
                if behind > 0:
                    os.kill(pid, signal.SIGSTOP)
                    ended.wait(behind)
                    os.kill(pid, signal.SIGCONT)

    threads = [threading.Thread(target=control, args=(pid,)) for pid in pids]
    for thread in threads:
        thread.start()
    try:
        yield
    finally:
        ended.set()
        for thread in threads:
            thread.join()
