"""Suites as programs name them, and running them on an engine or a server."""

import os
import secrets
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

import msgspec

from treadle.api.option_hints import refuse_unknown_options
from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import UsageError
from treadle.domain.evaluations import CaseResult, Evaluation, Lane
from treadle.domain.settings import InvalidValue
from treadle.domain.suites import Suite, SuiteTarget
from treadle.evaluation.runner import EvaluationOptions, run_evaluation
from treadle.evaluation.suite_file import SuiteFile, parse_suite, read_suite
from treadle.operations.operation import OperationClient

if TYPE_CHECKING:
    from treadle.api.agent import Agent

SuiteLike = str | Path | Mapping[str, Any] | Suite | SuiteFile
"""A suite: the name or the path of its file, or its content."""


class SuiteOptions(TypedDict, total=False):
    """How an evaluation is made."""

    agent: "str | Agent[Any, Any]"
    """Instead of the agents of the suite: `NAME`, `NAME@VERSION`, or on an engine an agent of the program."""
    cases: Sequence[str]
    """Only the cases of these names."""
    lane: Lane
    """`candidate`, the default, makes new runs; `observed` grades the recorded runs; `baseline` replays them."""
    repeat: int
    """Runs of each case."""
    parallel: int
    """Runs at a time. Default: 4."""
    max_cost: float
    """No further run starts beyond this cost in dollars."""
    fresh: bool
    """Pay again for cases that were run before."""
    name: str
    """The name under which the results are recorded. Default: that of the suite."""
    baseline: str
    """Compare with the latest evaluation of this name."""
    on_result: Callable[[CaseResult], object]
    """Called with each result as soon as there is one."""


def load_suite(suite: SuiteLike) -> SuiteFile:
    """Return a suite. Files are found by their path, in `evals` of the current folder, or in that of the home."""
    if isinstance(suite, str | Path):
        path = Path(suite)
        is_name = isinstance(suite, str) and path.suffix not in (".yaml", ".yml")
        name = suite if is_name else str(path.expanduser().absolute())
        return read_suite(str(name), Path.cwd(), Home.from_environment(os.environ).path)
    if isinstance(suite, SuiteFile):
        return suite
    if not isinstance(suite, Suite):
        try:
            suite = parse_suite(dict(suite))
        except InvalidValue as error:
            raise UsageError(f"The suite cannot be used: {error}") from None
    return SuiteFile("suite", Path.cwd() / "suite.yaml", suite)


def choose_parts(file: SuiteFile, options: SuiteOptions, agent: str | None) -> SuiteFile:
    """Return a suite with the agent and the cases that the options name."""
    suite = file.suite
    if agent is not None:
        suite = msgspec.structs.replace(suite, targets=(SuiteTarget(agent=agent),))
    wanted = options.get("cases")
    if wanted is not None:
        missing = set(wanted) - {each.name for each in suite.cases}
        if missing:
            raise UsageError(f"The suite {file.name} has no case `{sorted(missing)[0]}`. Name one that it has.")
        suite = msgspec.structs.replace(suite, cases=tuple([each for each in suite.cases if each.name in wanted]))
    return msgspec.structs.replace(file, suite=suite)


async def evaluate_suites(
    client: OperationClient,
    find_agent: Callable[[str], AgentSpec | None],
    suites: Sequence[SuiteLike],
    options: SuiteOptions,
) -> Evaluation:
    """Run suites, record the results and return them."""
    refuse_unknown_options(options, SuiteOptions)
    agent = options.get("agent")
    if agent is not None and not isinstance(agent, str):
        raise UsageError("An agent of this program runs on an engine of this program. Name an agent of the server.")
    if not suites:
        raise UsageError("There is no suite. Name at least one.")
    files = [choose_parts(load_suite(each), options, agent) for each in suites]
    tell = options.get("on_result")
    chosen = EvaluationOptions(
        lane=options.get("lane", "candidate"),
        repeat=options.get("repeat", 1),
        parallel=options.get("parallel", 4),
        max_cost=options.get("max_cost"),
        fresh=secrets.token_hex(8) if options.get("fresh") else "",
        name=options.get("name", ""),
    )

    def progress(result: CaseResult, *_: object) -> None:
        if tell is not None:
            tell(result)

    return await run_evaluation(client, files, chosen, options.get("baseline"), progress, find_agent)
