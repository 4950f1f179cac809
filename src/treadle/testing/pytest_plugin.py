"""The plugin for pytest: cases of suites as tests, and the fixture `evaluate`.

`pytest evals/support.yaml` runs each case of a suite with each of its targets as a test; `pytest --evals` also
collects the suites that it finds in folders named `evals`. Treadle is imported on first use."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from treadle.api.loop_thread import LoopThread
    from treadle.api.run_methods import RunMethods
    from treadle.domain.evaluations import Evaluation
    from treadle.domain.suites import Suite

FOLDER = "evals"
SUFFIXES = (".yaml", ".yml")


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("treadle", "Treadle")
    group.addoption(
        "--evals", action="store_true", help="collect the cases of suites in folders that are named `evals`"
    )


def pytest_configure(config: pytest.Config) -> None:
    config.stash[_SESSION] = EvaluationSession()


def pytest_unconfigure(config: pytest.Config) -> None:
    session = config.stash.get(_SESSION, None)
    if session is not None:
        session.close()


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> "SuiteCollector | None":
    if file_path.suffix not in SUFFIXES or file_path.parent.name != FOLDER:
        return None
    if not parent.session.isinitpath(file_path) and not parent.config.getoption("--evals"):
        return None
    make: Callable[..., SuiteCollector] = SuiteCollector.from_parent  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
    return make(parent, path=file_path)


@pytest.fixture(scope="session")
def treadle_engine() -> Any:
    """What `evaluate` runs agents on: an engine or a client that is not open. None: the agents of the home.
    Override it to add tools, agents and models of the program."""
    return None


@pytest.fixture
def evaluate(treadle_engine: Any) -> "Callable[..., Evaluation]":
    """Run suites as `treadle.evaluate` does. The test fails with the reasons if fewer than `minimum` of the runs
    pass: a share from 0 to 1."""
    import treadle

    def run(*suites: Any, minimum: float = 1.0, **options: Any) -> "Evaluation":
        evaluation = treadle.evaluate(*suites, engine=treadle_engine, **options)
        if evaluation.rate < minimum or any(each.state == "error" for each in evaluation.results):
            pytest.fail(explain(evaluation), pytrace=False)
        return evaluation

    return run


def explain(evaluation: "Evaluation") -> str:
    """Return why an evaluation failed, with the answers."""
    lines = [f"{len(evaluation.failures)} of {len(evaluation.results)} runs did not pass"]
    for each in evaluation.failures:
        lines.append(f"  {each.suite}, {each.title} ({each.target}, {each.run_id or 'no run'}): {each.problem}")
        if each.answer:
            lines.append(f"    answer: {each.answer[:500]}")
    return "\n".join(lines)


class EvaluationSession:
    """What runs the cases of suite files. It is opened with the first case."""

    def __init__(self) -> None:
        self._thread: LoopThread | None = None
        self._engine: Any = None

    def evaluate(self, suite: Any, **options: Any) -> "Evaluation":
        thread, engine = self._open()
        return thread.do(engine.evaluate(suite, **options))

    def _open(self) -> "tuple[LoopThread, RunMethods]":
        if self._thread is None:
            from treadle.api.evaluations import open_home
            from treadle.api.loop_thread import LoopThread

            thread, engine = LoopThread("treadle-pytest"), open_home()
            thread.do(engine.__aenter__())
            self._thread, self._engine = thread, engine
        return self._thread, self._engine

    def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            thread.do(self._engine.__aexit__(None, None, None))
            thread.close()


_SESSION = pytest.StashKey[EvaluationSession]()


class SuiteCollector(pytest.File):
    """A suite: each case with each target is a test."""

    def collect(self) -> "Iterator[CaseItem]":
        from treadle.domain.errors import TreadleError
        from treadle.evaluation.suite_file import read_suite

        try:
            suite = read_suite(str(self.path), self.path.parent).suite
        except TreadleError as error:
            raise self.CollectError(str(error)) from None
        make: Callable[..., CaseItem] = CaseItem.from_parent  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
        for target in suite.targets or (None,):
            for case in suite.cases:
                name = case.name if len(suite.targets) < 2 or target is None else f"{case.name} [{target.label}]"
                item = make(self, name=name)
                item.case, item.target = case.name, None if target is None else target.label
                item.extra_keyword_matches.update(case.tags)
                yield item


class CaseFailed(Exception):
    """A case that did not pass. The message says why."""


class CaseItem(pytest.Item):
    """A case that one target runs."""

    case: str
    target: str | None

    def runtest(self) -> None:
        import msgspec

        from treadle.api.suites import load_suite

        file = load_suite(self.path)
        suite: Suite = file.suite
        if self.target is not None:
            targets = tuple([each for each in suite.targets if each.label == self.target])
            suite = msgspec.structs.replace(suite, targets=targets)
        file = msgspec.structs.replace(file, suite=suite)
        evaluation = self.config.stash[_SESSION].evaluate(file, cases=[self.case], name=f"pytest {file.name}")
        if evaluation.failures:
            raise CaseFailed(explain(evaluation))

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *_: Any, **__: Any) -> Any:
        if isinstance(excinfo.value, CaseFailed):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        return self.path, None, self.name
