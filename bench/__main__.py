"""`python -m bench`: set up every contestant, let all of them do the same work in turn, and print the table."""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from urllib.request import urlopen

from bench import report
from bench.contest import WARM_UP_STEPS
from bench.endpoint import serve_endpoint
from bench.environments import python_for
from bench.scenarios import CONTESTANTS, QUICK, SCENARIOS, Contestant, Failure, Sample, Scenario

ROOT = Path(__file__).parent.parent
TIMEOUT_SECONDS = 900  # seconds for one contestant, one scenario, one round


def main() -> int:
    options = _options()
    contestants = [c for c in CONTESTANTS if not options.only or c.name in options.only]
    rounds: int = options.rounds or (1 if options.quick else 5)
    results = report.Results(rounds, contestants, QUICK if options.quick else SCENARIOS)
    pythons = _set_up(results, refresh=options.refresh)
    page = ""
    with serve_endpoint() as address:
        for number in range(rounds):
            for scenario in results.scenarios:
                for contestant in _rotate(contestants, number):
                    if python := pythons.get(contestant.name):
                        _print_progress(
                            f"round {number + 1}/{rounds} {scenario.name:7}{contestant.name:14}", end=""
                        )
                        _record(results, scenario, contestant, _measure(address, python, scenario, contestant))
            results.rounds = number + 1
            page = report.markdown(results)
            if options.markdown:  # after every round, so that a long benchmark can be watched and interrupted
                options.markdown.write_text(f"# Benchmark results\n\nMade by `{_describe_command()}`.\n\n{page}")
    print(json.dumps(report.as_json(results), indent=1) if options.json else page)
    return 0


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--rounds", type=int, help="how many rounds to take the median of (5; 1 with --quick)")
    parser.add_argument("--only", type=_parse_names, help="contestants, separated by commas")
    parser.add_argument("--quick", action="store_true", help="fewer runs, one round: a few minutes")
    parser.add_argument("--json", action="store_true", help="print every sample as JSON instead of the table")
    parser.add_argument("--markdown", type=Path, metavar="FILE", help="also write the table to this file")
    parser.add_argument("--refresh", action="store_true", help="recreate the peers' environments")
    return parser.parse_args()


def _parse_names(text: str) -> set[str]:
    names, known = set(text.split(",")), {contestant.name for contestant in CONTESTANTS}
    if unknown := names - known:
        raise argparse.ArgumentTypeError(f"no such contestant: {', '.join(unknown)}; there are {', '.join(known)}")
    return names


def _describe_command() -> str:
    return " ".join(["python -m bench", *sys.argv[1:]])


def _set_up(results: report.Results, *, refresh: bool) -> dict[str, str]:
    """Return the interpreter of every contestant that can compete."""
    pythons: dict[str, str] = {}
    for contestant in results.contestants:
        _print_progress(f"setting up {contestant.name}")
        match python_for(contestant, refresh=refresh):
            case Failure() as failure:
                _print_progress(f"  not installed: {failure.reason}")
                results.not_installed[contestant.name] = failure
            case python:
                pythons[contestant.name] = python
    return pythons


def _rotate(contestants: list[Contestant], by: int) -> list[Contestant]:
    """Return another order in every round, so that no contestant always runs after the same one."""
    by %= len(contestants)
    return contestants[by:] + contestants[:by]


def _measure(address: str, python: str, scenario: Scenario, contestant: Contestant) -> Sample | Failure:
    """Run one contestant once, and check the number of model calls that the work takes."""
    runs = scenario.runs_of(contestant)
    command = [python, "-m", f"bench.contestants.{contestant.name}", address, "--model", scenario.model]
    command += ["--runs", str(runs), "--concurrency", str(scenario.concurrency)]
    before = _count_calls(address)
    try:
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
        )
    except subprocess.TimeoutExpired:
        return Failure(f"not done after {TIMEOUT_SECONDS} s")
    if done.returncode:
        return Failure((done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1][:200])
    calls, warm_up_calls = runs * scenario.calls_per_run, scenario.concurrency * (WARM_UP_STEPS + 1)
    if (made := _count_calls(address) - before - warm_up_calls) != calls:
        return Failure(f"made {made} model calls where the work takes {calls}")
    measured = json.loads(done.stdout.splitlines()[-1])
    return Sample(runs=runs, calls=calls, tokens=runs * scenario.tokens_per_run, **measured)


def _count_calls(address: str) -> int:
    with urlopen(f"{address.removesuffix('/v1')}/calls") as response:
        return int(response.read())


def _record(
    results: report.Results, scenario: Scenario, contestant: Contestant, measured: Sample | Failure
) -> None:
    key = (contestant.name, scenario.name)
    match measured:
        case Failure():
            results.failures[key] = measured
            _print_progress(f"failed: {measured.reason}")
        case Sample():
            results.samples.setdefault(key, []).append(measured)
            _print_progress(f"{measured.ms_per_call:8.2f} ms/call {measured.wall:7.1f} s")


def _print_progress(text: str, end: str = "\n") -> None:
    print(text, file=sys.stderr, end=end, flush=True)


if __name__ == "__main__":
    sys.exit(main())
