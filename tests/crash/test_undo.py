"""Undoing changes of files after kill -9: at some moments here, at all of them in `tests.crash.undo_moments`."""

import subprocess
import sys

from tests.documentation import ROOT


def test_recorded_files_are_restored_exactly_after_a_kill() -> None:
    command = [sys.executable, "-m", "tests.crash.undo_moments", "17"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "everything was restored" in done.stdout
