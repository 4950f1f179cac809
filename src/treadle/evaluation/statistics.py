"""What counts of passed runs say: rates with confidence intervals, and paired comparisons."""

import math
from collections import defaultdict
from collections.abc import Iterable, Sequence

from treadle.domain.evaluations import CaseResult, Rate, TargetComparison, TargetSummary, Verdict

CONFIDENCE_Z = 1.959964
"""The normal quantile of 95 %."""
SIGNIFICANCE = 0.05


def compute_rate(passed: int, total: int) -> Rate:
    """Return a rate with its Wilson interval."""
    if not total:
        return Rate(0, 0, 0.0, 1.0)
    share, z = passed / total, CONFIDENCE_Z
    scale = 1 + z * z / total
    centre = (share + z * z / (2 * total)) / scale
    width = z * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total)) / scale
    return Rate(passed, total, max(0.0, centre - width), min(1.0, centre + width))


def compute_sign_test(more: int, fewer: int) -> float:
    """Return the exact two-sided p-value of a sign test. For cases that run once it is McNemar's exact test."""
    total = more + fewer
    if not total:
        return 1.0
    tail = sum(math.comb(total, count) for count in range(min(more, fewer) + 1)) / 2**total
    return min(1.0, 2 * tail)


def compare(
    target: str, results: Iterable[CaseResult], baseline: str, others: Iterable[CaseResult]
) -> TargetComparison:
    """Compare the results of two targets by the cases that both have. Repeats of a case count as one pair, because
    they are not independent."""
    ours, theirs = _rate_cases(results), _rate_cases(others)
    pairs = [(ours[case], theirs[case]) for case in ours if case in theirs]
    better = sum(mine > other for mine, other in pairs)
    worse = sum(mine < other for mine, other in pairs)
    p_value = compute_sign_test(better, worse)
    return TargetComparison(
        target=target,
        baseline=baseline,
        better=better,
        worse=worse,
        same=len(pairs) - better - worse,
        p_value=p_value,
        verdict=_judge(better, worse, p_value),
    )


def summarize(results: Sequence[CaseResult]) -> tuple[TargetSummary, ...]:
    """Return the summary of each target, in the order in which they appear."""
    by_target: dict[str, list[CaseResult]] = defaultdict(list)
    for each in results:
        by_target[each.target].append(each)
    return tuple([_summarize_target(target, found) for target, found in by_target.items()])


def _summarize_target(target: str, results: Sequence[CaseResult]) -> TargetSummary:
    graded = [each for each in results if each.state in ("passed", "failed")]
    scores = [grade.score for each in graded for grade in each.grades if grade.score is not None]
    return TargetSummary(
        target=target,
        rate=compute_rate(sum(each.state == "passed" for each in graded), len(graded)),
        errors=sum(each.state == "error" for each in results),
        skipped=sum(each.state == "skipped" for each in results),
        cost=sum(each.total_cost for each in results),
        unrecorded=sum(each.unrecorded for each in results),
        mean_score=sum(scores) / len(scores) if scores else None,
    )


def _rate_cases(results: Iterable[CaseResult]) -> dict[tuple[str, str], float]:
    found: dict[tuple[str, str], list[bool]] = defaultdict(list)
    for each in results:
        if each.state in ("passed", "failed"):
            found[each.suite, each.case].append(each.state == "passed")
    return {case: sum(passed) / len(passed) for case, passed in found.items()}


def _judge(better: int, worse: int, p_value: float) -> Verdict:
    if p_value >= SIGNIFICANCE:
        return "indistinguishable"
    return "better" if better > worse else "worse"
