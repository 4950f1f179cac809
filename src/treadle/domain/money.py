"""Amounts of money for people."""

from math import floor, isfinite, log10


def format_amount(value: float) -> str:
    """Return an amount of money rounded for people: two decimals, and two digits of what is less than a cent."""
    if value <= 0 or not isfinite(value):
        return f"{value:.2f}"
    return f"{value:,.{min(8, max(2, 1 - floor(log10(value))))}f}"


def format_cost(cost: float, unpriced_calls: int) -> str:
    """Return a cost in dollars, as far as prices are known."""
    if unpriced_calls and not cost:
        return "unknown"
    return f"${format_amount(cost)}{' and more' if unpriced_calls else ''}"
