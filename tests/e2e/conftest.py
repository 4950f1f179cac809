"""What the end-to-end tests share: which operations of the API the browser used, over all workers.

If all tests of the dashboard passed and no browser has called some operation, the run of the tests fails."""

import ast
import os
import re
import tempfile
from pathlib import Path

import pytest

from tests.e2e.terminal_stage import stage as stage
from tests.surfaces.test_dashboard_operations import ELSEWHERE, templates

FOLDER = Path(__file__).parent
_passed: set[str] = set()
_unused: list[str] = []


def received_folder() -> Path:
    """Return the folder where the workers of one test run record the requests of their browsers."""
    owner = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    return Path(tempfile.gettempdir()) / f"treadle-received-{owner}"


def list_dashboard_tests() -> set[str]:
    """Return every test function that opens the dashboard, as `file::name`."""
    return {
        f"{path.name}::{node.name}"
        for path in FOLDER.glob("test_dashboard*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    if report.when == "call" and report.passed:
        file, _, name = report.nodeid.rpartition("/")[2].partition("::")
        _passed.add(f"{file}::{name.partition('[')[0]}")


def pytest_sessionfinish() -> None:
    """Find the operations that no browser called, if all tests of the dashboard passed."""
    folder = received_folder()
    if "PYTEST_XDIST_WORKER" in os.environ or not folder.exists():
        return
    lines = {line for file in folder.iterdir() for line in file.read_text().splitlines()}
    for file in folder.iterdir():
        file.unlink()
    folder.rmdir()
    if list_dashboard_tests() - _passed:
        return  # only a part of the tests ran
    _unused.extend(
        operation
        for operation, (method, path) in templates().items()
        if operation not in ELSEWHERE
        and not any(re.fullmatch(f"{method} {re.sub(r'{[^}]*}', '[^/]+', path)}", line) for line in lines)
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _unused:
        terminalreporter.write_line(f"operations that no browser test called: {', '.join(_unused)}", red=True)
