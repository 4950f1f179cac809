"""Amounts of money are rounded for people."""

import pytest

from treadle.surfaces.cli.output import amount


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (0.0, "0.00"),
        (0.30000000000000004, "0.30"),
        (0.0234567, "0.023"),
        (0.00042345, "0.00042"),
        (12.3456, "12.35"),
        (1234567.891, "1,234,567.89"),
        (1e-12, "0.00000000"),
    ],
)
def test_an_amount_has_two_decimals_or_two_digits(value: float, shown: str) -> None:
    assert amount(value) == shown
