"""Suites as files: what is read, and the errors that name file, line and cure."""

from pathlib import Path

import pytest

from treadle.domain.errors import ConfigError
from treadle.domain.suites import CalledCheck, Contains
from treadle.evaluation.statistics import compute_rate, compute_sign_test
from treadle.evaluation.suite_file import read_suite

GOOD = """\
agent: ada
checks:
- {check: outcome, outcome: completed}
cases:
- name: one
  message: Where is the key?
  calls:
  - {tool: look, arguments: {place: hall}, result: A key.}
  checks:
  - check: contains
    text: hall
  - {check: called, tool: look, times: 1}
"""


def write(folder: Path, text: str) -> Path:
    (folder / "evals").mkdir(exist_ok=True)
    path = folder / "evals" / "keys.yaml"
    path.write_text(text)
    return path


def test_a_suite_is_read(tmp_path: Path) -> None:
    write(tmp_path, GOOD)
    [case] = read_suite("keys", tmp_path).suite.cases
    assert case.checks == (Contains("hall"), CalledCheck("look", times=1))


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("check: contains", "check: contain", 10, "found `contain`; did you mean `contains`?"),
        ("    text: hall", "    texts: hall", 11, "did you mean `text`?"),
        ("times: 1", "times: often", 12, "accepted: a whole number"),
        ("message: Where is the key?", "message: 7", 6, "found the number 7; accepted: text"),
        ("- name: one", "- title: one", 5, "title is not a known key"),
        ("agent: ada", "agents: ada", 1, "did you mean `agent`?"),
    ],
)
def test_an_error_names_file_line_and_cure(tmp_path: Path, old: str, new: str, line: int, said: str) -> None:
    path = write(tmp_path, GOOD.replace(old, new))
    with pytest.raises(ConfigError) as raised:
        read_suite("keys", tmp_path)
    assert str(raised.value).startswith(f"{path}:{line}: "), raised.value
    assert said in str(raised.value)


def test_rates_have_intervals_and_pairs_are_compared_exactly() -> None:
    rate = compute_rate(8, 10)
    assert (round(rate.low, 3), round(rate.high, 3)) == (0.49, 0.943)
    assert compute_rate(0, 0).high == 1.0
    assert compute_sign_test(5, 5) == 1.0
    assert round(compute_sign_test(9, 1), 4) == 0.0215
