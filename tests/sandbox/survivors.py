"""Checks whether processes outlive a command: `python -m tests.sandbox.survivors 200` tries each way 200 times."""

import asyncio
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path

from tests.patience import HANG_SECONDS
from tests.sandbox.hostile import MODES, POLICIES, processes_called, tree
from treadle.domain.permissions import SandboxMode
from treadle.ports.sandbox import Command
from treadle.sandbox.commands import ShellCommands
from treadle.sandbox.limits import CommandLimits

WAYS = ("timeout", "cancel", "death")


def a_mark() -> str:
    return f"survivor-{uuid.uuid4().hex}"


async def after_timeout(commands: ShellCommands, mode: SandboxMode, workspace: Path) -> list[int]:
    mark = a_mark()
    command = Command(tree(mark), workspace, POLICIES[mode], timeout=random.uniform(0.01, 0.2))
    finished = await commands.run(command, lambda text: None)
    assert finished.ended_by == "timeout", finished
    return processes_called(mark)


async def after_cancel(commands: ShellCommands, mode: SandboxMode, workspace: Path) -> list[int]:
    mark = a_mark()
    running = asyncio.create_task(commands.run(Command(tree(mark), workspace, POLICIES[mode]), lambda text: None))
    await asyncio.sleep(random.uniform(0, 0.2))
    running.cancel()
    try:
        finished = await running
    except asyncio.CancelledError:
        return processes_called(mark)  # it had not begun
    assert finished.ended_by == "cancelled", finished
    return processes_called(mark)


def after_death(mode: SandboxMode, workspace: Path) -> list[int]:
    mark = a_mark()
    worker = subprocess.Popen(
        [sys.executable, "-m", "tests.sandbox.worker", mode, str(workspace), tree(mark)],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert worker.stdout is not None
    with worker.stdout:
        assert worker.stdout.readline() == "starting\n"
        time.sleep(random.uniform(0, 0.2))
        worker.send_signal(signal.SIGKILL)
        worker.wait()
    until = time.monotonic() + HANG_SECONDS
    while (alive := processes_called(mark)) and time.monotonic() < until:
        time.sleep(0.01)
    return alive


async def survivors(way: str, mode: SandboxMode, trials: int, workspace: Path) -> list[int]:
    """Those that outlived any of so many trials, which are stopped after a while that is left to chance."""
    if way == "death":
        return [pid for _ in range(trials) for pid in await asyncio.to_thread(after_death, mode, workspace)]
    commands = ShellCommands(limits=CommandLimits(grace=0.05))
    try:
        await commands.confinement()
        attempt = after_timeout if way == "timeout" else after_cancel
        return [pid for _ in range(trials) for pid in await attempt(commands, mode, workspace)]
    finally:
        commands.close()


async def main(trials: int) -> int:
    found = 0
    with tempfile.TemporaryDirectory() as workspace:
        for mode in MODES:
            for way in WAYS:
                began = time.monotonic()
                alive = await survivors(way, mode, trials, Path(workspace))
                found += len(alive)
                took = time.monotonic() - began
                print(f"sandbox {mode:8} {way:8} {trials} trials, {len(alive)} survivors, {took:.0f} s", flush=True)
                for pid in alive:
                    os.kill(pid, signal.SIGKILL)
    return found


if __name__ == "__main__":
    sys.exit(bool(asyncio.run(main(int(sys.argv[1]) if len(sys.argv) > 1 else 200))))
