"""Checks whether commands leave anything behind: `python -m tests.sandbox.endurance 1000` runs 1000 of them and
measures the time."""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path

from msgspec import Struct

from tests.sandbox.hostile import MODES, POLICIES
from treadle.domain.permissions import SandboxMode
from treadle.ports.sandbox import Command
from treadle.sandbox.commands import ShellCommands


class Left(Struct, frozen=True):
    """What this process has that it did not have before."""

    processes: int
    descriptors: int
    files: int


def _have() -> Left:
    temporary = [name for name in os.listdir(tempfile.gettempdir()) if name.startswith("treadle-")]
    return Left(len(_below(os.getpid())), len(os.listdir("/proc/self/fd")), len(temporary))


def _below(pid: int) -> list[int]:
    found: list[int] = []
    for thread in os.listdir(f"/proc/{pid}/task"):
        found += map(int, Path(f"/proc/{pid}/task/{thread}/children").read_text().split())
    return found + [child for parent in found for child in _below(parent)]


async def endure(mode: SandboxMode, times: int, workspace: Path) -> tuple[Left, list[float]]:
    """Run this many commands. Return what they left behind and the seconds that each took."""
    before = _have()
    commands = ShellCommands()
    try:
        took: list[float] = []
        for _ in range(times + 1):
            began = time.perf_counter()
            finished = await commands.run(Command("true", workspace, POLICIES[mode]), lambda text: None)
            took.append(time.perf_counter() - began)
            assert finished.exit_code == 0, finished
    finally:
        commands.close()
    after = _have()
    left = Left(
        after.processes - before.processes, after.descriptors - before.descriptors, after.files - before.files
    )
    return left, took[1:]


async def main(times: int) -> None:
    with tempfile.TemporaryDirectory() as workspace:
        for mode in MODES:
            left, took = await endure(mode, times, Path(workspace))
            middle, late = statistics.median(took) * 1000, statistics.quantiles(took, n=20)[-1] * 1000
            print(
                f"sandbox {mode:8} {times} calls, p50 {middle:.1f} ms, p95 {late:.1f} ms, left: {left}", flush=True
            )


if __name__ == "__main__":
    asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 1000))
