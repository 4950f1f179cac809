"""Start-up cost of commands: CPU time as a ratio to `python -c 'import asyncio'`, and peak memory.

    python -m bench.startup [--rounds 10]

Every command runs in a process of its own; rounds of all commands alternate, and the median counts. `treadle run`
calls a fake endpoint. The last rows run while `treadle serve` owns the home."""

import argparse
import asyncio
import os
import pty
import subprocess
import sys
import tempfile
from collections.abc import Generator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from statistics import median
from typing import NamedTuple

from bench.endpoint import serve_endpoint

TREADLE = str(Path(sys.executable).with_name("treadle"))
BASE = (sys.executable, "-c", "import asyncio")
HELP, LIST, RUN = 1.5, 4.0, 8.0
"""The bars, as ratios."""
RUN_MEGABYTES = 80
CONFIG = """\
providers: {{fake: {{base_url: '{url}'}}}}
defaults: {{model: fake/tokens-16}}
"""


class Row(NamedTuple):
    """A command to measure, and its bar."""

    words: tuple[str, ...]
    bar: float
    on_terminal: bool = False


HELP_ROWS = (Row(("--help",), HELP), Row(("--version",), HELP))
LIST_ROWS = tuple(
    Row(words, LIST) for words in (("runs", "list"), ("sessions", "list"), ("agents", "list"), ("usage",))
)
RUN_ROWS = (Row(("run", "Hello."), RUN), Row(("run", "Hello."), RUN, on_terminal=True))


class Cost(NamedTuple):
    seconds: float
    megabytes: float


def measure_on_terminal(words: Sequence[str], environment: dict[str, str]) -> Cost:
    """Return the CPU time and the peak memory of a command whose output goes to a terminal."""
    outer, inner = pty.openpty()
    process = subprocess.Popen(words, env={**environment, "TERM": "xterm-256color"}, stdout=inner, stderr=inner)
    os.close(inner)
    shown = b""
    with suppress(OSError):  # the other end is closed
        while piece := os.read(outer, 65536):
            shown += piece
    os.close(outer)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} failed: {shown.decode()}")
    return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def measure_command(words: Sequence[str], environment: dict[str, str]) -> Cost:
    """Return the CPU time and the peak memory of a command."""
    process = subprocess.Popen(words, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, status, used = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    assert process.stderr is not None
    with process.stderr:
        errors = process.stderr.read().decode()
    if process.returncode:
        raise SystemExit(f"{' '.join(words)} failed: {errors}")
    return Cost(used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def measure(rows: Sequence[Row], rounds: int, environment: dict[str, str]) -> list[tuple[Row, float, float]]:
    """Return the ratio and the memory of each command, the median of several rounds."""
    base: list[float] = []
    found: dict[Row, list[Cost]] = {row: [] for row in rows}
    for _ in range(rounds):
        base.append(measure_command(BASE, environment).seconds)
        for row in rows:
            measure_row = measure_on_terminal if row.on_terminal else measure_command
            found[row].append(measure_row((TREADLE, *row.words), environment))
    unit = median(base)
    return [
        (row, median(cost.seconds for cost in costs) / unit, median(cost.megabytes for cost in costs))
        for row, costs in found.items()
    ]


@contextmanager
def run_server(environment: dict[str, str]) -> Generator[None]:
    """Run `treadle serve` until the block ends."""
    words = (TREADLE, "serve", "--port", "0", "--json")
    process = subprocess.Popen(words, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield
    finally:
        process.terminate()
        process.wait()


async def add_memories(folder: str) -> None:
    """Add memories to the home, so that runs recall them."""
    process = await asyncio.create_subprocess_exec(
        TREADLE, "memory", "add", "The sky is blue.", env={**os.environ, "TREADLE_HOME": folder}
    )
    assert await process.wait() == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=10)
    rounds: int = parser.parse_args().rounds
    with tempfile.TemporaryDirectory() as folder, serve_endpoint() as url:
        (Path(folder) / "config.yaml").write_text(CONFIG.format(url=url))
        environment = {"PATH": os.environ["PATH"], "HOME": folder, "TREADLE_HOME": folder}
        subprocess.run((TREADLE, "run", "Hello."), env=environment, check=True, capture_output=True)
        rows = [("", each) for each in measure((*HELP_ROWS, *LIST_ROWS, *RUN_ROWS), rounds, environment)]
        asyncio.run(add_memories(folder))
        rows += [(" (with memories)", each) for each in measure(RUN_ROWS, rounds, environment)]
        with run_server(environment):
            rows += [(" (attached)", each) for each in measure((*LIST_ROWS, *RUN_ROWS), rounds, environment)]
    print(f"{'command':52} {'ratio':>6} {'bar':>5} {'MB':>5}")
    missed = 0
    for note, (row, ratio, megabytes) in rows:
        is_met = ratio <= row.bar and (row.words[0] != "run" or megabytes <= RUN_MEGABYTES)
        place = " (on a terminal)" if row.on_terminal else ""
        name = f"treadle {' '.join(row.words)}{place}{note}"
        print(f"{name:52} {ratio:6.2f} {row.bar:5.1f} {megabytes:5.0f} {'' if is_met else '  over the bar'}")
        missed += not is_met
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
