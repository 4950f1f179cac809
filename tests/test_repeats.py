"""A test that fails gets a second attempt; what passed only then is named and counted. With a real pytest."""

from pathlib import Path

import pytest

from tests import repeats
from tests.repeats import MAX_REPEATED, MAX_SECOND_ATTEMPTS

ROOT = Path(__file__).parent.parent
FLAKY = """
import os, pathlib, pytest

def first_attempt(name):
    mark = pathlib.Path(f"{name}.mark")
    if mark.exists():
        return False
    mark.touch()
    return True
"""
WORKERS = ("-n", "2")


class Suite:
    """A folder with tests."""

    def __init__(self, folder: Path, capture: pytest.CaptureFixture[str]) -> None:
        self._folder, self._capture = folder, capture

    def run(self, tests: str, *arguments: str) -> tuple[int, list[str]]:
        """Return the exit code and the lines after the last report of pytest."""
        path = self._folder / "part" / "test_made.py"
        path.parent.mkdir()
        path.write_text(FLAKY + tests)
        code = repeats.main(arguments)
        _, _, end = self._capture.readouterr().out.rpartition("Passed only on the second attempt: ")
        return code, end.splitlines()


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Suite:
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = -q -p no:cacheprovider -p xdist\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", str(ROOT), prepend=":")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # importing the other plugins takes seconds
    return Suite(tmp_path, capfd)


def flaky(count: int) -> str:
    return f"""
@pytest.mark.parametrize("case", range({count}))
def test_flaky_case(case):
    assert not first_attempt(f"flaky-{{case}}")
"""


def test_a_run_without_failures_has_no_second_attempt(suite: Suite) -> None:
    code, lines = suite.run("def test_good_case(): assert first_attempt('good')")
    assert code == 0
    assert lines[-1].startswith("1 passed")


def test_what_passes_on_the_second_attempt_is_named_and_counted_with_setups_and_teardowns(suite: Suite) -> None:
    tests = """
@pytest.fixture(params=["before", "after"])
def faulty(request):
    assert request.param == "after" or not first_attempt("before")
    yield
    assert request.param == "before" or not first_attempt("after")

def test_faulty_fixture(faulty): pass
"""
    code, lines = suite.run(flaky(MAX_REPEATED - 2) + tests, "--", "part")
    assert code == 0
    assert lines[0] == f"{MAX_REPEATED} (at most {MAX_REPEATED} may)"
    assert sorted(lines[1:]) == [
        "  part/test_made.py::test_faulty_fixture[after]",
        "  part/test_made.py::test_faulty_fixture[before]",
        "  part/test_made.py::test_flaky_case[0]",
    ]


def test_more_than_three_fail_the_run(suite: Suite) -> None:
    code, lines = suite.run(flaky(MAX_REPEATED + 1))
    assert code == 1
    assert lines[0] == f"{MAX_REPEATED + 1} (at most {MAX_REPEATED} may)"


def test_a_test_that_fails_twice_fails_the_run(suite: Suite) -> None:
    code, lines = suite.run(flaky(1) + "def test_bad_case(): assert False")
    assert code == 1
    assert lines == [f"1 (at most {MAX_REPEATED} may)", "  part/test_made.py::test_flaky_case[0]"]


def test_a_test_that_is_skipped_on_its_second_attempt_has_not_passed(suite: Suite) -> None:
    tests = "def test_lost_tool():\n    assert not first_attempt('lost')\n    pytest.skip('lost')"
    code, lines = suite.run(tests)
    assert code == 1
    assert lines[-1].startswith("1 skipped")


def test_a_test_that_ends_its_worker_gets_a_second_attempt(suite: Suite) -> None:
    tests = "def test_deadly_case():\n    if first_attempt('deadly'): os._exit(1)"
    code, lines = suite.run(flaky(MAX_REPEATED - 1) + tests, *WORKERS)
    assert code == 0
    assert lines[0] == f"{MAX_REPEATED} (at most {MAX_REPEATED} may)"
    assert sorted(lines[1:]) == [
        "  part/test_made.py::test_deadly_case",
        *(f"  part/test_made.py::test_flaky_case[{case}]" for case in range(MAX_REPEATED - 1)),
    ]


def test_a_second_attempt_that_ends_the_process_fails_the_run(suite: Suite) -> None:
    tests = "def test_deadly_case():\n    assert not first_attempt('deadly')\n    os._exit(0)"
    code, _ = suite.run(flaky(1) + tests)
    assert code == 1


def test_many_failures_get_no_second_attempt(suite: Suite) -> None:
    code, lines = suite.run(flaky(MAX_SECOND_ATTEMPTS + 1))
    assert code == 1
    assert (
        lines[-1]
        == f"{MAX_SECOND_ATTEMPTS + 1} tests failed: more than {MAX_SECOND_ATTEMPTS} get no second attempt."
    )


def test_a_suite_that_cannot_be_collected_fails(suite: Suite) -> None:
    code, lines = suite.run("import nothing_like_this")
    assert code != 0
    assert not [line for line in lines if line.startswith("Second attempt")]
