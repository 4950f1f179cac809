"""The cost of a fork and of a replay grows linearly with the run. `python -m bench.fork` measures the time."""

import time
from pathlib import Path

from bench import fork

from tests.patience import LINEAR


async def measure_best(folder: Path, steps: int) -> tuple[float, float]:
    """Return the CPU seconds of the cheapest fork, and of the cheapest replay, of a run with so many steps."""
    folder.mkdir()
    forks, replays = await fork.measure(folder, steps, rounds=3, clock=time.process_time)
    return min(forks), min(replays)


async def test_four_times_the_steps_cost_about_four_times_as_much(tmp_path: Path) -> None:
    short, long = await measure_best(tmp_path / "short", 25), await measure_best(tmp_path / "long", 100)
    assert long[0] < LINEAR * short[0], "fork"
    assert long[1] < LINEAR * short[1], "replay"
