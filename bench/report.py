"""Turns samples into medians, ratios, bars, and the page that shows them."""

import os
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import median
from typing import Any

from bench.scenarios import FLOOR, FORMATS, TREADLE, Contestant, Failure, Sample, Scenario

COST_COLUMNS = ("alone, ms/call", "100 concurrent, ms/call", "100 steps, ms/call", "us/token")


@dataclass
class Results:
    """All samples of a session by contestant and scenario, and why contestants could not compete."""

    rounds: int
    contestants: Sequence[Contestant]
    scenarios: Sequence[Scenario]
    samples: dict[tuple[str, str], list[Sample]] = field(default_factory=dict[tuple[str, str], list[Sample]])
    failures: dict[tuple[str, str], Failure] = field(default_factory=dict[tuple[str, str], Failure])
    not_installed: dict[str, Failure] = field(default_factory=dict[str, Failure])

    def median(self, contestant: str, scenario: str, figure: Callable[[Sample], float]) -> float | None:
        samples = self.samples.get((contestant, scenario))
        return median(map(figure, samples)) if samples else None

    def ms_per_call(self, contestant: str, scenario: str) -> float | None:
        return self.median(contestant, scenario, lambda sample: sample.ms_per_call)

    def us_per_token(self, contestant: str) -> float | None:
        return self.median(contestant, "tokens", lambda sample: sample.us_per_token)

    def costs(self, contestant: str) -> list[float | None]:
        """In the order of COST_COLUMNS."""
        calls = [self.ms_per_call(contestant, scenario) for scenario in ("alone", "crowd", "long")]
        return [*calls, self.us_per_token(contestant)]

    def version(self, contestant: str) -> str:
        samples = [s for (name, _), found in self.samples.items() if name == contestant for s in found]
        return samples[0].version if samples else ""


@dataclass(frozen=True)
class Bar:
    """A promise of the project, with the measured value. No ratio: something was not measured."""

    promise: str
    measured: float | None
    limit: float
    at_most: bool

    @property
    def verdict(self) -> str:
        if self.measured is None:
            return "not measured"
        return "holds" if (self.measured <= self.limit) == self.at_most else "DOES NOT HOLD"


def bars(results: Results) -> list[Bar]:
    """Return every promise, in the order in which the project makes them."""
    found: list[Bar] = []
    for scenario, where in (("alone", "alone"), ("crowd", "100 concurrent runs"), ("long", "100 steps")):
        ratio = _ratio(results.ms_per_call("treadle", scenario), results.ms_per_call("floor", scenario))
        found.append(Bar(f"Treadle / floor, CPU per call, {where}: at most 2", ratio, 2, at_most=True))
    for scenario, where, times in (
        ("crowd", "100 concurrent runs", 10),
        ("long", "100 steps", 10),
        ("alone", "alone", 3),
    ):
        peers = [results.ms_per_call(c.name, scenario) for c in results.contestants if c.requirements]
        best = min((cost for cost in peers if cost is not None), default=None)
        ratio = _ratio(best, results.ms_per_call("treadle", scenario))
        promise = f"best peer / Treadle, CPU per call, {where}: at least {times}"
        found.append(Bar(promise, ratio, times, at_most=False))
    for contestant in (TREADLE, *FORMATS):
        cost = results.us_per_token(contestant.name)
        found.append(Bar(f"{contestant.title}, us per token: at most 25", cost, 25, at_most=True))
    return found


def _ratio(cost: float | None, other: float | None) -> float | None:
    return cost / other if cost is not None and other else None


def markdown(results: Results) -> str:
    """Return the whole page below its title."""
    parts = [
        f"Median of {results.rounds} interleaved round{'s' if results.rounds > 1 else ''}; Python "
        f"{platform.python_version()} on {platform.system()} {platform.machine()}, {os.cpu_count()} cores. "
        "CPU is user and system time of the contestant's process, after warm-up, without imports.",
        _figures(results),
        "CPU as a multiple of the floor's:",
        _multiples(results, FLOOR),
        "CPU as a multiple of Treadle's:",
        _multiples(results, TREADLE),
        _verdicts(results),
        _notes(results),
    ]
    return "\n\n".join(parts) + "\n"


def _figures(results: Results) -> str:
    columns = ("contestant", *COST_COLUMNS, "runs/s at 100 concurrent", "RSS MB at 100 concurrent")
    rows: list[tuple[str, ...]] = []
    for contestant in results.contestants:
        name = contestant.name
        title = f"{contestant.title} {results.version(name)}".strip()
        if missing := results.not_installed.get(name):
            rows.append((title, f"not installed: {missing.reason}", *[""] * 5))
            continue
        figures = [
            *zip(("alone", "crowd", "long", "tokens"), results.costs(name), strict=True),
            ("crowd", results.median(name, "crowd", lambda sample: sample.runs_per_second)),
            ("crowd", results.median(name, "crowd", lambda sample: sample.rss / 1024)),
        ]
        rows.append((title, *(_cell(results, name, scenario, value) for scenario, value in figures)))
    return _table(columns, rows)


def _verdicts(results: Results) -> str:
    rows = [(bar.promise, _number(bar.measured), bar.verdict) for bar in bars(results)]
    return _table(("bar", "measured", "verdict"), rows)


def _multiples(results: Results, unit: Contestant) -> str:
    units = results.costs(unit.name)
    rows = [
        (c.title, *(_number(_ratio(*pair)) for pair in zip(results.costs(c.name), units, strict=True)))
        for c in results.contestants
    ]
    return _table(("contestant", *(column.partition(",")[0] for column in COST_COLUMNS)), rows)


def _notes(results: Results) -> str:
    lines = [
        f"- {s.name}: {s.title}; {s.runs} runs a round for Treadle and the floor, {s.peer_runs} for each peer."
        for s in results.scenarios
    ]
    titles = {contestant.name: contestant.title for contestant in results.contestants}
    reasons: dict[tuple[str, str], list[str]] = {}
    for (name, scenario), failure in results.failures.items():
        reasons.setdefault((name, failure.reason), []).append(scenario)
    for (name, reason), scenarios in reasons.items():
        lines.append(f"- {titles[name]} failed at {', '.join(scenarios)}: {reason}")
    return "\n".join(lines)


def _cell(results: Results, contestant: str, scenario: str, value: float | None) -> str:
    failed = value is None and (contestant, scenario) in results.failures
    return "failed" if failed else _number(value)


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a Markdown table, padded to read well in a terminal."""
    cells = [columns, *([cell.replace("|", "/") for cell in row] for row in rows)]
    # A text that does not fit a column (a reason, in a row of empty cells) must not widen it.
    widths = [max(len(row[at]) for row in cells if at == 0 or len(row[at]) < 50) for at in range(len(columns))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)) + " |" for row in cells]
    return "\n".join([lines[0], "|" + "|".join("-" * (width + 2) for width in widths) + "|", *lines[1:]])


def as_json(results: Results) -> Mapping[str, Any]:
    """Return everything that was measured, with every round."""
    return {
        "rounds": results.rounds,
        "python": platform.python_version(),
        "scenarios": [asdict(scenario) for scenario in results.scenarios],
        "samples": [
            {"contestant": name, "scenario": scenario, **asdict(sample)}
            for (name, scenario), samples in results.samples.items()
            for sample in samples
        ],
        "not_installed": {name: failure.reason for name, failure in results.not_installed.items()},
        "failures": {f"{name} {scenario}": f.reason for (name, scenario), f in results.failures.items()},
        "bars": [{**asdict(bar), "verdict": bar.verdict} for bar in bars(results)],
    }
