"""The results of evaluations: what each run of a case scored, and what all of them say."""

from typing import Literal

from msgspec import Struct

from treadle.domain.ids import Instant, RunId

Lane = Literal["observed", "baseline", "candidate"]
"""observed: recorded runs as they are. baseline: today's configuration against recorded replies and results.
candidate: new runs."""
CaseState = Literal["passed", "failed", "error", "skipped"]
"""error: the case could not be run. skipped: the cost limit was reached first."""
Verdict = Literal["better", "worse", "indistinguishable"]


class CheckGrade(Struct, frozen=True, omit_defaults=True):
    """The result of one check."""

    check: str
    passed: bool
    reason: str = ""
    score: float | None = None
    """From 0 to 1, of a judge or a function."""
    cost: float = 0.0
    """Dollars that the judge cost."""
    run_id: RunId | None = None
    """The run of the judge."""


class CaseResult(Struct, frozen=True, omit_defaults=True):
    """One run of one case by one target."""

    suite: str
    case: str
    target: str
    repeat: int
    state: CaseState
    run_id: RunId | None = None
    digest: str = ""
    """The content that the run was made of. Equal digests share a run."""
    grades: tuple[CheckGrade, ...] = ()
    reason: str = ""
    """Why it could not be run."""
    answer: str = ""
    cost: float = 0.0
    steps: int = 0
    duration_ms: int = 0
    unrecorded: int = 0
    """Calls that had no recorded result."""
    tags: tuple[str, ...] = ()

    @property
    def key(self) -> tuple[str, str, int]:
        """What a case has in common with the same case of another target or evaluation."""
        return self.suite, self.case, self.repeat

    @property
    def problem(self) -> str:
        """Why it did not pass; empty if it did."""
        failed = [f"{each.check}: {each.reason}" for each in self.grades if not each.passed]
        return self.reason or "; ".join(failed)

    @property
    def title(self) -> str:
        """The case, with the number of a repetition."""
        return self.case if self.repeat == 1 else f"{self.case} #{self.repeat}"

    @property
    def total_cost(self) -> float:
        return self.cost + sum(each.cost for each in self.grades)


class Rate(Struct, frozen=True):
    """How many runs passed, with a confidence interval of 95 %."""

    passed: int
    total: int
    low: float
    high: float

    @property
    def share(self) -> float:
        return self.passed / self.total if self.total else 0.0


class TargetComparison(Struct, frozen=True):
    """A target compared with another one, case by case."""

    target: str
    baseline: str
    better: int
    """Cases that it passes more often."""
    worse: int
    same: int
    p_value: float
    """How probable a difference of this size is if there is none."""
    verdict: Verdict


class TargetSummary(Struct, frozen=True):
    """What the results of one target say."""

    target: str
    rate: Rate
    errors: int
    skipped: int
    cost: float
    unrecorded: int
    mean_score: float | None = None
    """The mean score of judges and functions."""


class Evaluation(Struct, frozen=True):
    """A finished evaluation, as `evaluate` returns it.

    For example:

        suite = {"agent": "default", "cases": [{"name": "greeting", "message": "How are you?"}]}
        evaluation: treadle.Evaluation = treadle.evaluate(suite)
        print(evaluation.rate, [each.answer for each in evaluation.results])
        assert not evaluation.failures, evaluation.explain()
    """

    evaluation_id: str
    name: str
    """What `--baseline` names."""
    lane: Lane
    started_at: Instant
    ended_at: Instant
    results: tuple[CaseResult, ...]
    targets: tuple[TargetSummary, ...]
    comparisons: tuple[TargetComparison, ...] = ()

    @property
    def failures(self) -> tuple[CaseResult, ...]:
        """The results that did not pass."""
        return tuple([each for each in self.results if each.state != "passed"])

    def explain(self) -> str:
        """Return a line for each result that did not pass, with the reason."""
        return "\n".join([f"{each.state}: {each.suite}, {each.title}: {each.problem}" for each in self.failures])

    @property
    def rate(self) -> float:
        """The share of all runs that passed."""
        passed = sum(each.rate.passed for each in self.targets)
        total = sum(each.rate.total for each in self.targets)
        return passed / total if total else 0.0
