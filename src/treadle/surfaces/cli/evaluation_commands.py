"""What `treadle eval` does: makes cases, runs suites, and prints what the results say."""

import secrets
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from treadle.bootstrap.callers import open_persistent_readonly_caller
from treadle.domain.errors import TreadleError, UsageError
from treadle.domain.evaluations import CaseResult, Evaluation, Lane, TargetComparison
from treadle.domain.ids import RunId
from treadle.domain.suites import Contains, SuiteTarget
from treadle.evaluation.datasets import Shape, read_cases, write_cases
from treadle.evaluation.report import describe_comparison, describe_rate, make_html, make_junit
from treadle.evaluation.runner import EvaluationOptions, run_evaluation
from treadle.evaluation.suite_file import add_case, find_suite_path, read_suite
from treadle.operations import evaluations, feedback, runs
from treadle.operations.operation import LocalCaller, list_items
from treadle.operations.recorded_cases import read_recorded_case
from treadle.surfaces.cli.follow import make_engine
from treadle.surfaces.home_access.connection import current_home, open_admin_caller, open_home
from treadle.surfaces.home_access.references import find_run
from treadle.surfaces.terminal.output import note, print_json, print_list, print_result, print_table, when
from treadle.surfaces.terminal.text import inert

GOOD = 0.5
COST_LIMIT = 3


class RequestedCase(Struct, frozen=True):
    """The arguments of `treadle eval add`."""

    run: str
    step: int | None
    suite: str | None
    name: str
    contains: tuple[str, ...]
    search: str | None
    feedback: Literal["good", "bad"] | None
    limit: int


class WantedEvaluation(Struct, frozen=True, kw_only=True):
    """The arguments of `treadle eval run`."""

    suites: tuple[str, ...]
    repeat: int
    parallel: int
    max_cost: float | None
    lane: Lane
    agent: str | None
    name: str
    baseline: str | None
    fail_below: float | None
    fresh: bool
    junit: Path | None
    html: Path | None


# ── Cases ──


async def add_cases(wanted: RequestedCase, json: bool) -> int:
    """Add the cases that a command names. Runs of a list that make no case are reported and left out."""
    suite = ""
    async with open_persistent_readonly_caller(current_home()) as caller:
        found = await _find_runs(caller, wanted)
        for run_id in found:
            try:
                path, name = await _add(caller, run_id, wanted)
                suite = path.stem
            except TreadleError as error:
                if len(found) == 1 and wanted.run:
                    raise
                note(f"{run_id} was left out: {error}")
                continue
            if json:
                print_json({"suite": path.stem, "case": name, "file": str(path), "run_id": run_id})
            else:
                print(f"Added the case `{inert(name)}` to {path}")
    if suite and not json:
        note(f"Run it with: treadle eval run {suite}")
    if not found:
        note("No such runs.")
    return 0 if found else 1


async def _find_runs(caller: LocalCaller, wanted: RequestedCase) -> Sequence[RunId]:
    if sum(map(bool, (wanted.run, wanted.search, wanted.feedback))) != 1:
        raise UsageError("Name one run, or use either --search or --feedback.")
    if wanted.run:
        return [await find_run(caller, wanted.run)]
    if wanted.feedback is not None:
        is_bad = wanted.feedback == "bad"
        request = feedback.ListFeedback(max_score=0.499 if is_bad else None, min_score=None if is_bad else 0.5)
        given = await list_items(caller, feedback.LIST, request, wanted.limit)
        return list(dict.fromkeys(each.run_id for each in given))
    request = runs.ListRuns(text=wanted.search)
    views = await list_items(caller, runs.LIST, request, wanted.limit)
    return [each.run_id for each in views if each.outcome is not None]


async def _add(caller: LocalCaller, run_id: RunId, wanted: RequestedCase) -> tuple[Path, str]:
    checks = tuple([Contains(text) for text in wanted.contains])
    agent, case = await read_recorded_case(caller, run_id, wanted.step, wanted.name, checks)
    path = find_suite_path(wanted.suite or agent, Path.cwd())
    return path, add_case(path, agent, case)


# ── Feedback and data sets ──


async def score_run(run: str, opinion: str, note_text: str, json: bool) -> int:
    """Score a run. The opinion is `good`, `bad` or a number."""
    try:
        score = {"good": 1.0, "bad": 0.0}.get(opinion)
        score = float(opinion) if score is None else score
    except ValueError:
        raise UsageError(f"`{opinion}` cannot be understood. Write good, bad, or a score from 0 to 1.") from None
    async with open_admin_caller(current_home()) as caller:
        run_id = await find_run(caller, run)
        given = await caller.call(feedback.GIVE, feedback.GiveFeedback(run_id, score, note_text))
    print_result(given, f"Scored {run_id}: {given.score:g}", json=json)
    return 0


def import_file(file: Path, suite: str, agent: str, json: bool) -> int:
    """Add the cases of a data set to a suite."""
    try:
        text = file.read_text(encoding="utf-8-sig")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} cannot be read: {error}. Name a file with JSON lines.") from None
    path, count = find_suite_path(suite, Path.cwd()), 0
    for case in read_cases(text):
        add_case(path, agent, case)
        count += 1
    added = {"suite": path.stem, "file": str(path), "cases": count}
    print_result(added, f"Added {count} cases to {path}", json=json)
    return 0


async def export_suite(suite: str, shape: Shape, evaluation: str | None) -> int:
    """Print the cases of a suite, with the results of an evaluation if one is named."""
    cases, results = read_suite(suite, Path.cwd(), current_home().path).suite.cases, dict[str, CaseResult]()
    if evaluation is not None:
        async with open_persistent_readonly_caller(current_home()) as caller:
            found = await caller.call(evaluations.SHOW, evaluations.OneEvaluation(evaluation))
        results = {each.case: each for each in found.results}
    for line in write_cases(cases, shape, results):
        print(line)
    return 0


# ── Running ──


async def evaluate(wanted: WantedEvaluation, json: bool) -> int:
    """Run suites, record the results and print the verdict. Return the exit code."""
    home = current_home()
    suites = [read_suite(name, Path.cwd(), home.path) for name in wanted.suites]
    if wanted.agent is not None:
        targets = (SuiteTarget(agent=wanted.agent),)
        suites = [
            msgspec.structs.replace(each, suite=msgspec.structs.replace(each.suite, targets=targets))
            for each in suites
        ]
    options = EvaluationOptions(
        lane=wanted.lane,
        repeat=wanted.repeat,
        parallel=wanted.parallel,
        max_cost=wanted.max_cost,
        fresh=secrets.token_hex(8) if wanted.fresh else "",
        name=wanted.name,
    )
    async with open_home(make_engine(home), home) as access:
        progress = None if json else Progress()
        evaluation = await run_evaluation(access.client, suites, options, wanted.baseline, progress)
    if wanted.junit is not None:
        _write(wanted.junit, make_junit(evaluation))
    if wanted.html is not None:
        _write(wanted.html, make_html(evaluation))
    if json:
        print_json(evaluation)
    else:
        print_evaluation(evaluation)
    comparison = None if wanted.baseline is None else evaluation.comparisons[-1]
    return find_exit_code(evaluation, comparison, wanted.fail_below)


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text)
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}. Name another file.") from None


class Progress:
    """Shows how far an evaluation is: a line that is written over on a terminal, otherwise the failures."""

    def __init__(self) -> None:
        self._failed = 0

    def __call__(self, result: CaseResult, done: int, total: int, cost: float) -> None:
        if result.state in ("failed", "error"):
            self._failed += 1
        if sys.stderr.isatty():
            end = "\n" if done == total else ""
            print(f"\r{done} of {total}, {self._failed} failed, ${cost:.4f} ", end=end, file=sys.stderr, flush=True)


def find_exit_code(evaluation: Evaluation, comparison: TargetComparison | None, fail_below: float | None) -> int:
    """Return 0 if enough passed and nothing is worse. A skipped case means that the cost limit was reached."""
    if any(each.state == "skipped" for each in evaluation.results):
        return COST_LIMIT
    if comparison is not None and comparison.verdict == "worse":
        return 1
    if any(each.state == "error" for each in evaluation.results):
        return 1
    if fail_below is None:
        fail_below = 0.0 if comparison is not None else 1.0
    return 1 if evaluation.rate < fail_below else 0


# ── Printing ──


def print_evaluation(evaluation: Evaluation) -> None:
    """Print the runs that did not pass, the rate of each target and the verdicts."""
    bad = [each for each in evaluation.results if each.state != "passed"]
    if bad:
        rows = [
            (each.state, each.suite, each.title, each.target,
             each.run_id or "", each.problem)
            for each in bad
        ]  # fmt: skip
        print_table(("STATE", "SUITE", "CASE", "TARGET", "RUN", "REASON"), rows)
        print()
    for each in evaluation.targets:
        cost = f", ${each.cost:.4f}" if each.cost else ""
        extra = "".join(
            [
                f", {each.errors} errors" if each.errors else "",
                f", {each.skipped} skipped" if each.skipped else "",
                f", {each.unrecorded} calls without a recorded result" if each.unrecorded else "",
                f", mean score {each.mean_score:.2f}" if each.mean_score is not None else "",
            ]
        )
        print(inert(f"{each.target}: {describe_rate(each)}{extra}{cost}"))
    for each in evaluation.comparisons:
        print(inert(describe_comparison(each)))
    note(f"Recorded as {evaluation.evaluation_id} ({evaluation.name}).")


async def print_evaluations(limit: int, json: bool) -> int:
    async with open_persistent_readonly_caller(current_home()) as caller:
        found = await list_items(caller, evaluations.LIST, evaluations.ListEvaluations(), limit)
    head = ("EVALUATION", "ENDED", "NAME", "LANE", "RESULT")
    print_list(found, head, _row, json=json, empty="No evaluations yet. Run one: treadle eval run SUITE")
    return 0


async def print_stored(name: str, html: Path | None, json: bool) -> int:
    async with open_persistent_readonly_caller(current_home()) as caller:
        found = await caller.call(evaluations.SHOW, evaluations.OneEvaluation(name))
        people = await list_items(caller, feedback.LIST, feedback.ListFeedback())
    if html is not None:
        _write(html, make_html(found))
    if json:
        print_json(found)
        return 0
    print_evaluation(found)
    agreement = compute_agreement(found, {each.run_id: each.score for each in people})
    if agreement is not None:
        agreed, total = agreement
        note(f"The judges agree with people's feedback on {agreed} of {total} runs.")
    return 0


def compute_agreement(evaluation: Evaluation, scores: dict[RunId, float]) -> tuple[int, int] | None:
    """Return on how many of the runs that people scored the judges agree with them: both above a half, or both
    not."""
    agreed = total = 0
    for result in evaluation.results:
        judged = [grade.score for grade in result.grades if grade.check == "judge" and grade.score is not None]
        if judged and result.run_id is not None and result.run_id in scores:
            total += 1
            agreed += (sum(judged) / len(judged) >= GOOD) == (scores[result.run_id] >= GOOD)
    return (agreed, total) if total else None


def _row(view: evaluations.EvaluationView) -> tuple[str, ...]:
    result = "; ".join(f"{each.target}: {each.rate.share:.0%}" for each in view.targets)
    with suppress(IndexError):
        result = f"{result} ({view.comparisons[-1].verdict})"
    return view.evaluation_id, when(view.ended_at), view.name, view.lane, result
