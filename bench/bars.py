"""Measurements with their bars, printed and judged."""

from collections.abc import Iterable
from typing import NamedTuple


class Row(NamedTuple):
    """A measurement and its bar."""

    name: str
    value: float
    bar: float
    unit: str

    @property
    def is_met(self) -> bool:
        return self.value <= self.bar

    def __str__(self) -> str:
        verdict = "met" if self.is_met else "MISSED"
        return f"{self.name:50}{self.value:9.2f} {self.unit:12} bar {self.bar:g}  {verdict}"


def judge(rows: Iterable[Row]) -> int:
    """Print measurements as they come. Return the status of the program: 1 if a bar is missed."""
    missed = 0
    for row in rows:
        missed += not row.is_met
        print(row, flush=True)
    return 1 if missed else 0
