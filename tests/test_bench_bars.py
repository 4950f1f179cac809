"""Benchmarks judge their bars."""

import math

import pytest
from bench.bars import Row, judge
from bench.first_success import Answer, find_fault
from bench.instructions import Pair, report


def test_a_missed_bar_fails_the_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    good, late, unmeasured = Row("a", 1.0, 1.0, "s"), Row("b", 1.1, 1.0, "s"), Row("c", math.inf, 300, "ms")
    assert judge([good]) == 0
    assert judge(iter([good, late])) == 1
    assert judge([unmeasured]) == 1
    assert judge([Row("d", math.nan, 300, "ms")]) == 1
    printed = capsys.readouterr().out
    assert printed.count("MISSED") == 3
    assert printed.count(" met") == 2


@pytest.mark.parametrize(
    ("text", "seconds", "exit_code", "fault"),
    [
        ("A reed,\na shuttle.\n", 19.9, 0, None),
        ("A loom,\n\n  a LOOM,\na loom,\n", 1.0, 0, "a repeated line"),
        ('{"tool": "read_file"}\n', 1.0, 0, "tool syntax"),
        ("```json\n{}\n```\n", 1.0, 0, "tool syntax"),
        ("A reed.\n", 20.1, 0, "20.1 s"),
        ("A reed.\n", 1.0, 3, "exit code 3"),
        ("\n", 1.0, 0, "no text"),
    ],
)
def test_an_answer_of_the_first_command_is_judged(
    text: str, seconds: float, exit_code: int, fault: str | None
) -> None:
    assert find_fault(Answer(text, seconds, exit_code)) == fault


def test_only_a_ratio_well_above_the_record_is_an_increase(capsys: pytest.CaptureFixture[str]) -> None:
    recorded = {"model call": 2.0, "token": 1.0}
    counted = {"model call": Pair(205.9, 100.0), "token": Pair(90.0, 100.0)}
    assert report("a machine", counted, recorded) == 0
    assert report("a machine", counted | {"token": Pair(103.1, 100.0)}, recorded) == 1
    assert capsys.readouterr().out.count("ABOVE THE RECORD") == 1
    assert report("another machine", counted, None) == 0
