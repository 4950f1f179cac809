"""Benchmarks judge their bars."""

import math

import pytest
from bench.bars import Row, judge


def test_a_missed_bar_fails_the_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    good, late, unmeasured = Row("a", 1.0, 1.0, "s"), Row("b", 1.1, 1.0, "s"), Row("c", math.inf, 300, "ms")
    assert judge([good]) == 0
    assert judge(iter([good, late])) == 1
    assert judge([unmeasured]) == 1
    assert judge([Row("d", math.nan, 300, "ms")]) == 1
    printed = capsys.readouterr().out
    assert printed.count("MISSED") == 3
    assert printed.count(" met") == 2
