"""A pytest plugin that fails a run of the dashboard tests when no browser called some operation of the API.

It checks complete runs only: if a test was deselected, skipped or failed, the plugin reports nothing."""

import ast
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import pytest

Templates = Mapping[str, tuple[str, str]]
"""The method and the path of every operation."""


def received_folder() -> Path:
    """Return the folder where the workers of one test run record the requests of their browsers."""
    owner = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
    return Path(tempfile.gettempdir()) / f"treadle-received-{owner}"


def record_request(method: str, path: str) -> None:
    """Record that the server answered a request of a browser. Programs outside of pytest record nothing."""
    folder = received_folder()
    if folder.is_dir():
        with (folder / str(os.getpid())).open("a") as file:
            file.write(f"{method} {path}\n")


def list_dashboard_tests(folder: Path) -> set[str]:
    """Return every test function that opens the dashboard, as `file::name`."""
    return {
        f"{path.name}::{node.name}"
        for path in folder.glob("test_dashboard*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and node.name.startswith("test_")
    }


def find_uncalled(templates: Templates, requests: Iterable[str]) -> list[str]:
    """Return the operations that match none of the requests."""
    seen = set(requests)
    patterns = {
        name: re.compile(f"{method} {re.sub(r'{[^}]*}', '[^/]+', path)}")
        for name, (method, path) in templates.items()
    }
    return [name for name, pattern in patterns.items() if not any(map(pattern.fullmatch, seen))]


class OperationCoverage:
    """Collects the requests of all workers and checks them when the run ends."""

    def __init__(self, tests: Path, list_templates: Callable[[], Templates]) -> None:
        self._tests = tests
        self._list_templates = list_templates
        self._passed: set[str] = set()
        self._uncalled: list[str] = []

    def pytest_sessionstart(self) -> None:
        """Create an empty folder for the records. A killed process with the same ID may have left one."""
        shutil.rmtree(received_folder(), ignore_errors=True)
        received_folder().mkdir()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            file, _, name = report.nodeid.rpartition("/")[2].partition("::")
            self._passed.add(f"{file}::{name.partition('[')[0]}")

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Fail a complete and successful run if no browser called some operation."""
        folder = received_folder()
        requests = [line for file in folder.glob("*") for line in file.read_text().splitlines()]
        shutil.rmtree(folder, ignore_errors=True)
        if session.exitstatus != pytest.ExitCode.OK or list_dashboard_tests(self._tests) - self._passed:
            return
        self._uncalled = find_uncalled(self._list_templates(), requests)
        if self._uncalled:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._uncalled:
            names = ", ".join(self._uncalled)
            terminalreporter.write_line(f"No browser test called these operations: {names}.", red=True)
