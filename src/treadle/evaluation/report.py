"""Reports of evaluations: a summary for terminals, JUnit XML, and an HTML page that needs no server."""

from collections.abc import Sequence
from html import escape
from xml.sax.saxutils import quoteattr

from treadle.domain.evaluations import CaseResult, Evaluation, TargetComparison, TargetSummary

CONTROL = {code: None for code in range(32) if chr(code) not in "\t\n\r"}
"""Characters that XML cannot hold."""


def describe_rate(summary: TargetSummary) -> str:
    """Return a rate with its interval: `7 of 8 passed, 88 % (53 to 98 %)`."""
    rate = summary.rate
    return f"{rate.passed} of {rate.total} passed, {rate.share:.0%} ({rate.low:.0%} to {rate.high:.0%})"


def describe_comparison(comparison: TargetComparison) -> str:
    """Return the verdict on two targets in one line."""
    said = "not distinguishable from" if comparison.verdict == "indistinguishable" else f"{comparison.verdict} than"
    return (
        f"{comparison.target} is {said} {comparison.baseline}: "
        f"{comparison.better} cases better, {comparison.worse} worse, {comparison.same} the same "
        f"(p = {comparison.p_value:.3g})"
    )


def make_junit(evaluation: Evaluation) -> str:
    """Return the results as JUnit XML. Each target of a suite is a test suite."""
    groups: dict[str, list[CaseResult]] = {}
    for each in evaluation.results:
        groups.setdefault(f"{each.suite} [{each.target}]", []).append(each)
    suites = "".join([_make_suite(name, results) for name, results in groups.items()])
    head = f'<?xml version="1.0" encoding="UTF-8"?>\n<testsuites name={_quote(evaluation.name)}>\n'
    return f"{head}{suites}</testsuites>\n"


def _make_suite(name: str, results: Sequence[CaseResult]) -> str:
    counts = {state: sum(each.state == state for each in results) for state in ("failed", "error", "skipped")}
    seconds = sum(each.duration_ms for each in results) / 1000
    head = (
        f'  <testsuite name={_quote(name)} tests="{len(results)}" failures="{counts["failed"]}" '
        f'errors="{counts["error"]}" skipped="{counts["skipped"]}" time="{seconds:.3f}">\n'
    )
    return head + "".join(map(_make_case, results)) + "  </testsuite>\n"


def _make_case(result: CaseResult) -> str:
    opening = (
        f"    <testcase classname={_quote(result.suite)} name={_quote(result.title)} "
        f"time={_quote(f'{result.duration_ms / 1000:.3f}')}"
    )
    reason = result.problem
    match result.state:
        case "passed":
            return f"{opening}/>\n"
        case "failed":
            return f"{opening}><failure message={_quote(reason)}/></testcase>\n"
        case "error":
            return f"{opening}><error message={_quote(reason)}/></testcase>\n"
        case "skipped":
            return f"{opening}><skipped message={_quote(reason)}/></testcase>\n"


def _quote(text: str) -> str:
    return quoteattr(text.translate(CONTROL))


STYLE = """
:root { color-scheme: light dark; font: 15px/1.5 system-ui, sans-serif; }
body { max-width: 72rem; margin: 2rem auto; padding: 0 1rem; }
table { border-collapse: collapse; width: 100%; }
th, td { text-align: left; padding: .35rem .6rem; border-bottom: 1px solid #8884; vertical-align: top; }
td.number { text-align: right; font-variant-numeric: tabular-nums; }
.passed { color: #1a7f37; } .failed, .error { color: #cf222e; } .skipped { color: #9a6700; }
details pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #8881; padding: .6rem; }
.verdict { font-size: 1.1rem; }
"""


def make_html(evaluation: Evaluation) -> str:
    """Return the results as a page that loads nothing."""
    summaries = "".join(
        [
            f"<tr><td>{escape(each.target)}</td><td>{escape(describe_rate(each))}</td>"
            f'<td class="number">{each.errors}</td><td class="number">{each.unrecorded}</td>'
            f'<td class="number">${each.cost:.4f}</td></tr>'
            for each in evaluation.targets
        ]
    )
    verdicts = "".join(
        [f'<p class="verdict">{escape(describe_comparison(each))}</p>' for each in evaluation.comparisons]
    )
    rows = "".join(map(_make_row, evaluation.results))
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'\">"
        f"<title>{escape(evaluation.name)}</title><style>{STYLE}</style></head><body>"
        f"<h1>{escape(evaluation.name)}</h1><p>Lane: {evaluation.lane}</p>{verdicts}"
        "<table><thead><tr><th>Target</th><th>Result</th><th>Errors</th><th>Unrecorded calls</th><th>Cost</th></tr>"
        f"</thead><tbody>{summaries}</tbody></table><h2>Cases</h2>"
        "<table><thead><tr><th>Case</th><th>Target</th><th>State</th><th>Steps</th><th>Cost</th><th>Details</th></tr>"
        f"</thead><tbody>{rows}</tbody></table></body></html>\n"
    )


def _make_row(result: CaseResult) -> str:
    grades = "".join(
        [
            f'<li class="{"passed" if each.passed else "failed"}">{escape(each.check)}'
            f"{'' if each.score is None else f' {each.score:.2f}'}"
            f"{escape(f': {each.reason}' if each.reason else '')}</li>"
            for each in result.grades
        ]
    )
    reason = f"<p>{escape(result.reason)}</p>" if result.reason else ""
    details = (
        f"<details><summary>{escape(result.run_id or 'no run')}</summary>{reason}<ul>{grades}</ul>"
        f"<pre>{escape(result.answer)}</pre></details>"
    )
    return (
        f"<tr><td>{escape(result.suite)} / {escape(result.title)}</td><td>{escape(result.target)}</td>"
        f'<td class="{result.state}">{result.state}</td><td class="number">{result.steps}</td>'
        f'<td class="number">${result.total_cost:.4f}</td><td>{details}</td></tr>'
    )
