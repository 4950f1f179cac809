"""Runs many schedules in several processes, and prints every seed that fails."""

import argparse
import logging
import sys
import time
import traceback
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from typing import Literal

from treadle.testing.simulation.scenario import SimulationSchedule, simulate

BLOCK = 250


def run_block(first: int, size: int) -> tuple[Counter[str], list[tuple[int, str]]]:
    """Simulate the seeds of a block. Return counts of the outcomes, and the seeds that failed."""
    logging.disable(logging.CRITICAL)
    found: Counter[str] = Counter()
    failed: list[tuple[int, str]] = []
    for seed in range(first, first + size):
        try:
            report = simulate(schedule_of(seed))
        except Exception as error:
            failed.append((seed, f"{type(error).__name__}: {error}"))
        else:
            found.update(report.outcomes)
            found["crashes"] += report.crashes
            found["writes"] += report.writes
    return found, failed


def schedule_of(seed: int) -> SimulationSchedule:
    workers: Literal[1, 2] = 2 if seed % 3 == 0 else 1
    return SimulationSchedule(seed, workers)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m treadle.testing.simulation", description=__doc__)
    parser.add_argument("--schedules", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--seed", type=int, help="replay one seed and show what fails")
    options = parser.parse_args()
    if options.seed is not None:
        return replay(options.seed)
    return run_all(options.first, options.schedules, options.processes)


def replay(seed: int) -> int:
    try:
        print(simulate(schedule_of(seed)))
    except Exception:
        traceback.print_exc()
        return 1
    return 0


def run_all(first: int, schedules: int, processes: int) -> int:
    began, found, done = time.monotonic(), Counter[str](), 0
    failures: list[tuple[int, str]] = []
    blocks = [(start, min(BLOCK, first + schedules - start)) for start in range(first, first + schedules, BLOCK)]
    with ProcessPoolExecutor(processes) as pool:
        for (_, size), (block, failed) in zip(blocks, pool.map(run_block, *zip(*blocks, strict=True)), strict=True):
            done += size
            found += block
            failures += failed
            for seed, error in failed:
                print(f"seed {seed} failed: {error[:500]}")
                print(f"  replay: python -m treadle.testing.simulation --seed {seed}")
            rate = done / (time.monotonic() - began)
            print(
                f"\r{done} of {schedules} schedules, {rate:.0f}/s, {len(failures)} failed ", end="", file=sys.stderr
            )
    print(file=sys.stderr)
    print(f"{done} schedules, {found['crashes']} crashes in {found['writes']} writes, {len(failures)} failed")
    print(
        ", ".join(f"{name} {number}" for name, number in sorted(found.items()) if name not in ("crashes", "writes"))
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
