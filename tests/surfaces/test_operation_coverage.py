"""The check of `tests/e2e` that browsers call every operation, in runs of pytest with tests of their own."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.documentation import ROOT
from tests.e2e.operation_coverage import find_uncalled

OPERATIONS = {"runs.list": ("GET", "/v1/runs"), "runs.show": ("GET", "/v1/runs/{run_id}")}
CONFTEST = f"""
import os
from pathlib import Path
from tests.e2e.operation_coverage import OperationCoverage

def pytest_configure(config):
    if "PYTEST_XDIST_WORKER" not in os.environ:
        config.pluginmanager.register(OperationCoverage(Path(__file__).parent, lambda: {OPERATIONS!r}))
"""
TESTS = """
from tests.e2e.operation_coverage import record_request

def test_the_list_is_called():
    record_request("GET", "/v1/runs")

def test_one_is_shown():
    {show}
"""
CALLED, NOT_CALLED, FAILED = 'record_request("GET", "/v1/runs/run_1")', "pass", "assert False"
UNCALLED = "No browser test called these operations: runs.show."


def run_tests(folder: Path, show: str, *arguments: str) -> tuple[int, str]:
    """Run pytest on a folder with two dashboard tests. Return the exit code and the output."""
    (folder / "conftest.py").write_text(CONFTEST)
    (folder / "test_dashboard.py").write_text(TESTS.format(show=show))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *arguments]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    done = subprocess.run(
        [*command, "--rootdir", str(folder), str(folder)],
        cwd=ROOT,
        env=environment | {"TMPDIR": str(folder), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize("arguments", [(), ("-p", "xdist", "-n", "1")], ids=["one process", "workers"])
def test_a_run_fails_if_no_browser_called_an_operation(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    code, output = run_tests(tmp_path, NOT_CALLED, *arguments)
    assert (code, UNCALLED in output) == (1, True), output
    code, output = run_tests(tmp_path, CALLED, *arguments)
    assert code == 0, output


def test_a_partial_run_does_not_fail(tmp_path: Path) -> None:
    code, output = run_tests(tmp_path, NOT_CALLED, "-k", "list")
    assert (code, UNCALLED in output) == (0, False), output


def test_a_run_with_a_failed_test_reports_only_that_test(tmp_path: Path) -> None:
    code, output = run_tests(tmp_path, FAILED)
    assert (code, UNCALLED in output) == (1, False), output


def test_parameters_of_paths_match_one_segment() -> None:
    assert find_uncalled(OPERATIONS, ["GET /v1/runs/run_1/events", "POST /v1/runs"]) == ["runs.list", "runs.show"]
    assert find_uncalled(OPERATIONS, ["GET /v1/runs/run_1", "GET /v1/runs"]) == []
