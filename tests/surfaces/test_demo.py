"""The demo, as far as it needs no weights: a run is killed in the middle, and nothing is done twice."""

import os
import subprocess
import sys
from pathlib import Path

from tests.patience import HANG_SECONDS


def test_the_run_that_is_killed_goes_on_and_does_nothing_twice(tmp_path: Path) -> None:
    program = "import sys, pathlib; from treadle.surfaces import demo; demo.survive(pathlib.Path(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env={"PATH": os.environ["PATH"], "TREADLE_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "kill -9, in the middle of write_report" in done.stdout
    assert "the report has 1 line, not two" in done.stdout
    assert "recovered: " in done.stderr
