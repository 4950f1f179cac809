"""Amounts of money, as people read them."""

import pytest

from treadle.domain.money import format_amount, format_cost


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
    assert format_amount(value) == shown


def test_a_cost_says_that_prices_are_unknown() -> None:
    assert format_cost(0.0, 0) == "$0.00"
    assert format_cost(0.0, 2) == "unknown"
    assert format_cost(1.5, 0) == "$1.50"
    assert format_cost(1.5, 2) == "$1.50 and more"
