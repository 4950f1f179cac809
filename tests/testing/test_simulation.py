"""Thousands of schedules in virtual time, a crash around every single write, and proof that the simulation would
notice an engine that is broken."""

import logging
import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator

import pytest

from tests.patience import HANG_SECONDS
from treadle.testing.faults import Fault
from treadle.testing.simulation import __main__ as command
from treadle.testing.simulation.__main__ import run_block, schedule_of
from treadle.testing.simulation.scenario import SimulationReport, SimulationSchedule, simulate

BLOCK = 45
BLOCKS = 2
ONE_IN_ORDER = """
import logging
from treadle.testing.simulation.__main__ import schedule_of
from treadle.testing.simulation.scenario import simulate
logging.disable(logging.CRITICAL)
for seed in range(6):
    print(simulate(schedule_of(seed)))
"""


@pytest.fixture(autouse=True)
def restore_logging() -> Iterator[None]:
    """`run_block` silences the log of its process, which other tests want to read."""
    before = logging.root.manager.disable
    yield
    logging.disable(before)


@pytest.mark.parametrize("first", range(0, BLOCK * BLOCKS, BLOCK))
def test_random_schedules_violate_no_invariant(first: int) -> None:
    found, failed = run_block(first, BLOCK)
    assert failed == [], f"replay: python -m treadle.testing.simulation --seed {failed[0][0]}"
    assert found["crashes"] > BLOCK / 2, "the schedules hardly crash any more: they show nothing"
    assert found["completed"] > BLOCK
    assert found["cancelled"] > BLOCK / 10


def writes_of(schedule: SimulationSchedule) -> int:
    return simulate(schedule).writes


@pytest.mark.parametrize(
    ("seed", "runs", "interval"), [(7, 3, 1), (6, 5, 3)], ids=["alone", "with runs under them"]
)
@pytest.mark.parametrize("workers", [1, 2])
def test_a_crash_around_any_write_loses_nothing(workers: int, seed: int, runs: int, interval: int) -> None:
    """One worker dies before every other write, and after those between. Of the many writes of runs with runs under
    them, it dies around one in three. The command of the simulation crashes around each write in both ways."""
    undisturbed = simulate(_schedule(seed, workers, ()))
    writes = undisturbed.writes
    assert writes > 15
    assert len(undisturbed.outcomes) >= runs, "the schedule is not what it was: choose another"
    survived: Counter[int] = Counter()
    either: tuple[Fault, ...] = ("before", "after")
    crashes: list[tuple[int, Fault]] = [
        (number, when)
        for number in range(workers % interval, writes, interval)
        for when in either[number % 2 : number % 2 + 1]
    ]
    for crash in crashes:
        survived[simulate(_schedule(seed, workers, (crash,))).crashes] += 1
    assert survived[1] == len(crashes), "a crash was planned for a write that was never made"


def test_two_crashes_in_a_row_lose_nothing() -> None:
    """The process that takes over dies at its first writes too."""
    for number in range(0, writes_of(_schedule(11, 1, ())), 3):
        for again in range(1, 4):
            simulate(_schedule(11, 1, ((number, "after"), (number + again, "before"))))


def _schedule(seed: int, workers: int, crashes: tuple[tuple[int, Fault], ...]) -> SimulationSchedule:
    return SimulationSchedule(seed, 2 if workers == 2 else 1, crashes)


def test_a_schedule_is_deterministic() -> None:
    for seed in range(8):
        assert simulate(schedule_of(seed)) == simulate(schedule_of(seed))


def test_a_schedule_is_deterministic_across_processes() -> None:
    """Nothing depends on the hashes that Python draws for each process."""
    printed = {
        subprocess.run(
            [sys.executable, "-c", ONE_IN_ORDER],
            env=os.environ | {"PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
            timeout=HANG_SECONDS,
        ).stdout
        for seed in ("1", "4242")
    }
    assert len(printed) == 1
    assert printed.pop().count("Report(") == 6


def test_a_failing_seed_is_named(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fails(schedule: SimulationSchedule) -> SimulationReport:
        raise AssertionError("broken on purpose")

    monkeypatch.setattr(command, "simulate", fails)
    _, failed = run_block(5, 2)
    assert [seed for seed, _ in failed] == [5, 6]
    assert command.replay(5) == 1
    assert "broken on purpose" in capsys.readouterr().err
