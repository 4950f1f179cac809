"""Instructions that a model call, a token and a tool call take, compared with the bare loop and with the record.

    python -m bench.instructions [--record]

Callgrind counts them, so that they hardly vary with what else the machine does: a change of 3 % is visible, which
`make bench` cannot see. The recorded value is the ratio to the bare loop, for each architecture and version of
Python. `--record` replaces it, in a commit of its own with the reason. The kernel's work is not counted."""

import argparse
import asyncio
import importlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from bench.contest import OpenContestant, perform
from bench.endpoint import serve_endpoint

RECORD = Path(__file__).with_suffix(".json")
TOLERANCE = 1.03
ROUNDS = 3
"""The lowest count is taken: work that is done by time falls into some rounds, and more of it on a slow machine."""
ATTEMPTS = 3
"""How often it is counted before an increase is believed."""
CONTESTANTS = ("treadle", "floor")
TOKENS = 16
STEPS = 20
WARM_UP = f"steps-4-calls-2-tokens-{TOKENS}"
MARK = "getloadavg"
"""A function of the C library that nothing else calls. At each call of it, callgrind writes what it has counted."""


@dataclass(frozen=True)
class Work:
    """Runs of a model that are counted together."""

    model: str
    runs: int
    tokens: int


CALLS = Work(f"steps-{STEPS}-tokens-{TOKENS}", 6, TOKENS)
MANY_CALLS = Work(f"steps-{STEPS}-calls-4-tokens-{TOKENS}", 3, TOKENS)
LONG_ANSWERS = Work("tokens-2000", 3, 2000)
SHORT_ANSWERS = Work("tokens-1000", 3, 1000)
WORKS = (CALLS, MANY_CALLS, LONG_ANSWERS, SHORT_ANSWERS)
Counts = dict[str, float]


class Pair(NamedTuple):
    """Instructions for the same work."""

    own: float
    floor: float

    @property
    def ratio(self) -> float:
        return self.own / self.floor


Counted = dict[str, Pair]


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.instructions", description=__doc__)
    parser.add_argument("--record", action="store_true", help="replace the recorded ratios of this machine's kind")
    parser.add_argument("--contestant", choices=CONTESTANTS, help=argparse.SUPPRESS)
    parser.add_argument("--url", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.contestant:
        asyncio.run(work_marked(options.contestant, options.url))
        return 0
    if (reason := find_obstacle()) is not None:
        print(f"{reason}; nothing was counted")
        return 0
    records: dict[str, Counts] = json.loads(RECORD.read_text())
    kind = f"{platform.machine()} {platform.python_implementation()} {sys.version_info[0]}.{sys.version_info[1]}"
    recorded = None if options.record else records.get(kind)
    best = count_both()
    for _ in range(ATTEMPTS - 1):
        if not list_exceeded(best, recorded):
            break
        again = count_both()
        best = {name: min(best[name], again[name], key=lambda each: each.ratio) for name in best}
    if options.record:
        records[kind] = recorded = {name: round(each.ratio, 3) for name, each in best.items()}
        RECORD.write_text(json.dumps(dict(sorted(records.items())), indent=2) + "\n")
    return report(kind, best, recorded)


def find_obstacle() -> str | None:
    """Return why nothing can be counted on this machine, or None."""
    if shutil.which("valgrind") is None:
        return "valgrind is not installed (Debian: apt install valgrind)"
    with tempfile.TemporaryDirectory() as folder:
        done = run_counted(folder, ["-c", "import os; os.getloadavg()"])
        if done.returncode or not (Path(folder) / "counts.1").exists():
            return f"callgrind cannot run this Python: {done.stderr[-500:]}"
    return None


def run_counted(folder: str, words: list[str]) -> "subprocess.CompletedProcess[str]":
    """Run this Python under callgrind, which writes what it has counted into the folder at each mark."""
    command = ["valgrind", "--tool=callgrind", f"--dump-before={MARK}", f"--callgrind-out-file={folder}/counts"]
    environment = os.environ | {"PYTHONHASHSEED": "0"}
    command += [sys.executable, *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def list_exceeded(counted: Counted, recorded: Counts | None) -> list[str]:
    return [name for name in counted if recorded and counted[name].ratio > recorded[name] * TOLERANCE]


def report(kind: str, counted: Counted, recorded: Counts | None) -> int:
    """Print the table. Return 1 if a ratio is above the recorded one."""
    exceeded = list_exceeded(counted, recorded)
    print(f"{kind}: thousands of instructions\n")
    print(f"{'':12}{'Treadle':>10}{'bare loop':>11}{'ratio':>8}{'recorded':>10}")
    for name, (own, floor) in counted.items():
        last = f"{recorded[name]:10.3f}" if recorded else f"{'-':>10}"
        verdict = "  MORE THAN 3 % ABOVE THE RECORD" if name in exceeded else ""
        print(f"{name:12}{own / 1e3:10.1f}{floor / 1e3:11.1f}{own / floor:8.3f}{last}{verdict}")
    if recorded is None:
        print("\nNothing is recorded for this kind of machine, so nothing is judged. To record it: --record")
    return 1 if exceeded else 0


def count_both() -> Counted:
    """Return the instructions of Treadle and of the bare loop."""
    with serve_endpoint() as url, ThreadPoolExecutor() as pool:
        own, floor = pool.map(partial(count, url), CONTESTANTS)
    return {name: Pair(own[name], floor[name]) for name in own}


def count(url: str, contestant: str) -> Counts:
    """Return the instructions per model call, per token and per tool call."""
    with tempfile.TemporaryDirectory() as folder:
        done = run_counted(folder, ["-m", "bench.instructions", "--contestant", contestant, "--url", url])
        if done.returncode:
            raise SystemExit(f"{contestant} failed under valgrind:\n{done.stderr[-2000:]}")
        parts = [read_count(Path(folder) / f"counts.{number}") for number in range(2, ROUNDS * len(WORKS) + 2)]
    calls, many_calls, long_answers, short_answers = (
        min(parts[first :: len(WORKS)]) for first in range(len(WORKS))
    )
    per_call = calls / (CALLS.runs * (STEPS + 1))
    more_tools = many_calls / (MANY_CALLS.runs * (STEPS + 1)) - per_call
    tokens = LONG_ANSWERS.runs * (LONG_ANSWERS.tokens - SHORT_ANSWERS.tokens)
    return {
        "model call": per_call,
        "token": (long_answers - short_answers) / tokens,
        "tool call": more_tools * (STEPS + 1) / (STEPS * 3),
    }


def read_count(dump: Path) -> int:
    """Return the instructions that a dump has counted since the dump before it."""
    totals = re.search(r"^(?:totals|summary): (\d+)", dump.read_text(errors="replace"), re.MULTILINE)
    if totals is None:
        raise SystemExit(f"callgrind wrote no total into {dump.name}")
    return int(totals[1])


async def work_marked(contestant: str, url: str) -> None:
    """Do the work, with a mark before and after each kind."""
    opened: OpenContestant = importlib.import_module(f"bench.contestants.{contestant}").opened
    async with opened(url) as agent_for:
        await perform(agent_for(WARM_UP), 2, 1, TOKENS)
        os.getloadavg()
        for work in WORKS * ROUNDS:
            await perform(agent_for(work.model), work.runs, 1, work.tokens)
            os.getloadavg()


if __name__ == "__main__":
    sys.exit(main())
