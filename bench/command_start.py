"""`python -m bench.command_start`: the cost of the seccomp filter for a command, as a ratio of the time without
it.

Each round runs the same two commands in the sandbox, alternately with and without the filter: one that does
nothing, so that only its start counts, and one that makes 200,000 system calls. The medians are compared."""

import asyncio
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from treadle.domain.permissions import SandboxPolicy
from treadle.ports.sandbox import Command
from treadle.sandbox import bubblewrap
from treadle.sandbox.commands import ShellCommands
from treadle.sandbox.seccomp import build_sandbox_filter

ROUNDS = 100
BAR = 1.1
WORK = {
    "start": ("true", ROUNDS),
    "system calls": ("dd if=/dev/zero of=/dev/null bs=1 count=100000 2>&1", ROUNDS // 4),
}


def commands_with(make_filter: Callable[[], bytes | None]) -> ShellCommands:
    """Return commands whose sandbox has this filter. It is created when the sandbox is first tried."""
    bubblewrap.build_sandbox_filter = make_filter
    commands = ShellCommands()
    found = asyncio.run(commands.confinement())
    if not found.sandbox:
        sys.exit(f"no sandbox works here: {found.reason}")
    return commands


async def _milliseconds(commands: ShellCommands, command: Command) -> float:
    began = time.perf_counter()
    await commands.run(command, lambda text: None)
    return (time.perf_counter() - began) * 1000


def main() -> int:
    with_filter, without = commands_with(build_sandbox_filter), commands_with(lambda: None)
    code = 0
    with tempfile.TemporaryDirectory() as folder:
        for name, (text, rounds) in WORK.items():
            command = Command(text, Path(folder).resolve(), SandboxPolicy("required"))
            times: tuple[list[float], list[float]] = ([], [])
            for _ in range(rounds):
                for commands, taken in zip((with_filter, without), times, strict=True):
                    taken.append(asyncio.run(_milliseconds(commands, command)))
            filtered, plain = map(statistics.median, times)
            ratio = filtered / plain
            code |= ratio > BAR
            print(f"{name:14}{filtered:8.2f} ms with the filter{plain:8.2f} ms without   ratio {ratio:.3f}")
    for commands in (with_filter, without):
        commands.close()
    return code


if __name__ == "__main__":
    sys.exit(main())
