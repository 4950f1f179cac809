"""A long run is forked and replayed quickly: `python -m bench.fork` says how quickly."""

import asyncio
from pathlib import Path

from bench import fork

SLACK = 2
"""A machine that runs the whole suite at once is slower than the bar is meant for."""


def test_a_long_run_is_forked_and_replayed_in_no_time(tmp_path: Path) -> None:
    forks, replays = asyncio.run(fork.measure(tmp_path, rounds=1))
    assert max(forks) < SLACK * fork.BAR
    assert max(replays) < SLACK * fork.BAR
