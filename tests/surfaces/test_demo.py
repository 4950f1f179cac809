"""The second part of the demo, which needs no weights: a run is killed, resumed, and no effect is repeated."""

import os
import subprocess
import sys
from pathlib import Path

from tests.patience import HANG_SECONDS


def test_a_killed_run_is_resumed_and_repeats_no_effect(tmp_path: Path) -> None:
    program = "import sys; from pathlib import Path; from treadle.surfaces import demo; "
    program += "demo.kill_and_resume(Path(sys.argv[1]))"
    done = subprocess.run(
        [sys.executable, "-c", program, str(tmp_path)],
        env={"PATH": os.environ["PATH"], "TREADLE_HOME": str(tmp_path / "home")},
        capture_output=True,
        text=True,
        timeout=HANG_SECONDS,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "kill -9 during write_report" in done.stdout
    assert "The report has 1 line, not two" in done.stdout
    assert "recovered: " in done.stderr
