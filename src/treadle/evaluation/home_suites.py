"""The suites of a home: the files `evals/NAME.yaml` in it."""

from collections.abc import Sequence
from pathlib import Path

from treadle.domain.errors import TreadleError
from treadle.domain.suites import Case
from treadle.evaluation.suite_file import FOLDER, SUFFIX, add_case, read_suite
from treadle.ports.evaluations import StoredSuite


class HomeSuites:
    """Implements `Suites` with the files of a home."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def list(self) -> Sequence[StoredSuite]:
        names = sorted(path.stem for path in (self._home / FOLDER).glob(f"*{SUFFIX}"))
        return [each for name in names if (each := self.find(name)) is not None]

    def find(self, name: str) -> StoredSuite | None:
        path = self._home / FOLDER / f"{name}{SUFFIX}"
        if path.parent != self._home / FOLDER or not path.is_file():
            return None
        changed_at = path.stat().st_mtime
        try:
            return StoredSuite(name, changed_at, read_suite(name, self._home).suite)
        except TreadleError as error:
            return StoredSuite(name, changed_at, None, str(error))

    def add(self, name: str, agent: str, case: Case) -> str:
        return add_case(self._home / FOLDER / f"{name}{SUFFIX}", agent, case)
