"""Runs pytest, and runs each test that failed once more: `python -m tests.repeats [OPTION]... [-- PATH...]`.

The second attempts run in one process, one after the other, after everything else. The names of the tests that pass
only then are printed and counted. More than three of them fail the run, and so does a test that fails twice.

This module is also the plugin with which pytest records what each test came to."""

import json
import signal
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import pytest

MAX_REPEATED = 3
"""More tests than this that pass only on their second attempt fail the run."""
MAX_SECOND_ATTEMPTS = 20
"""If more tests than this fail, the run fails without second attempts: they have one cause, and would take long."""


class OutcomeLog:
    """Appends the outcome of each test to a file at once: a test that hangs may end the process."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed or (report.passed and report.when == "call"):
            with self._file.open("a") as lines:
                lines.write(json.dumps([report.nodeid, report.outcome]) + "\n")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--outcome-log", type=Path, help="file to which the outcomes of the tests are appended")


def pytest_configure(config: pytest.Config) -> None:
    file: Path | None = config.getoption("--outcome-log")
    if file is not None and not hasattr(config, "workerinput"):  # the workers of xdist report to their controller
        config.pluginmanager.register(OutcomeLog(file))


class Attempt:
    """One run of pytest."""

    def __init__(self, arguments: Sequence[str]) -> None:
        with tempfile.TemporaryDirectory() as folder:
            log = Path(folder) / "outcomes"
            log.touch()
            command = [sys.executable, "-m", "pytest", "-p", "tests.repeats", f"--outcome-log={log}", *arguments]
            self.exit_code = subprocess.run(command, check=False).returncode
            outcomes = [json.loads(line) for line in log.read_text().splitlines()]
        self.failed = list(dict.fromkeys(test for test, outcome in outcomes if outcome == "failed"))
        self.passed = {test for test, outcome in outcomes if outcome == "passed"}.difference(self.failed)


def run_again(tests: Sequence[str], options: Sequence[str]) -> Attempt:
    """Run the given tests one after the other in one process."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as names:
        names.write("\n".join(tests))
        names.flush()
        return Attempt([*options, "-n", "0", f"@{names.name}"])


def main(arguments: Sequence[str]) -> int:
    """Return the exit code of the run."""
    end = arguments.index("--") if "--" in arguments else len(arguments)
    options, paths = arguments[:end], arguments[end + 1 :]
    first = Attempt([*options, *paths])
    if first.exit_code != pytest.ExitCode.TESTS_FAILED or not first.failed:
        return first.exit_code
    if len(first.failed) > MAX_SECOND_ATTEMPTS:
        print(f"{len(first.failed)} tests failed: more than {MAX_SECOND_ATTEMPTS} get no second attempt.")
        return first.exit_code
    print(f"\nSecond attempt of what failed: {len(first.failed)}", flush=True)
    second = run_again(first.failed, options)
    repeated = [test for test in first.failed if test in second.passed]
    if repeated:
        print(f"\nPassed only on the second attempt: {len(repeated)} (at most {MAX_REPEATED} may)")
        print("\n".join(f"  {test}" for test in repeated))
    if len(repeated) < len(first.failed):
        return second.exit_code or pytest.ExitCode.TESTS_FAILED
    return pytest.ExitCode.TESTS_FAILED if len(repeated) > MAX_REPEATED else second.exit_code


def leave_to_pytest(_number: int, _frame: object) -> None:
    """Ignore a signal that pytest gets as well: it ends in its own way."""


if __name__ == "__main__":
    signal.signal(signal.SIGINT, leave_to_pytest)
    sys.exit(main(sys.argv[1:]))
