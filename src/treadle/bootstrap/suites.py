"""The suites of a home."""

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from treadle.ports.evaluations import Suites


def make_suites(home: Path) -> "Suites":
    """Return the suites of a home."""
    from treadle.evaluation.home_suites import HomeSuites  # few commands use it

    return HomeSuites(home)
