"""Evaluations: `python -m bench.evaluations` measures the three bars.

- The baseline lane: recorded runs of the simulation, with tools, approvals, compaction, children, steering, retries
  and crashes, replay the same.
- Cases that run 50 at a time and are killed with SIGKILL at five moments give the same report as without.
- An evaluated run costs at most 10 % more processor time than the plain run.

`--runs N`, `--cases N` and `--measured N` make it smaller."""

import argparse
import asyncio
import json
import logging
import subprocess
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from treadle.api.engine import HostedEngine, create_engine
from treadle.config.home import Home
from treadle.domain.evaluations import Evaluation
from treadle.domain.suites import CalledCheck, Case, Contains, RecordedCall, Suite
from treadle.evaluation.runner import EvaluationOptions, EvaluationRunner
from treadle.evaluation.suite_file import SuiteFile
from treadle.operations.operation import LocalCaller
from treadle.ports.model import ModelRequest
from treadle.testing.models import FunctionModel, ScriptStep, ask, call, say

PARALLEL = 50
KILLS = 5
SHOWN = (
    "tool_call_end", "approval_requested", "context_compacted", "agent_spawn", "message_steered", "llm_retry",
    "run_recovered",
)  # fmt: skip
"""Events whose runs are counted in the report."""
ALLOWED_OVERHEAD = 0.10
AGENT = "name: ada\nmodel: fake/m\npersona: Be brief.\ntools: [look]\nmemory: {remember: false}\n"


def look(place: str) -> str:
    """Look somewhere."""
    return f"There is a key in {place}."


async def answer(request: ModelRequest) -> ScriptStep:
    last = request.conversation.messages[-1]
    await asyncio.sleep(0.005)
    return say("It is there.") if last.role == "tool" else ask(call("look", place=last.text))


def make_suite(cases: int) -> SuiteFile:
    made = [
        Case(
            name=f"case {number}",
            message=f"room {number}",
            calls=(RecordedCall(tool="look", arguments={"place": f"room {number}"}, result=f"A key in {number}."),),
            checks=(Contains("there" if number % 7 else "nowhere"), CalledCheck("look", times=1)),
        )
        for number in range(cases)
    ]
    return SuiteFile("bench", Path("bench.yaml"), Suite(agent="ada", cases=tuple(made)))


def make_engine(folder: Path) -> HostedEngine:
    home = Home(folder / "home")
    file = home.path / "agents" / "ada" / "config.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    if not file.exists():
        file.write_text(AGENT)
    engine = create_engine(f"sqlite:///{folder / 'treadle.db'}", home=home)
    engine.add_model("fake", FunctionModel(answer))
    engine.add_tools(look)
    return engine


async def evaluate(folder: Path, cases: int, parallel: int, tell: bool = False) -> Evaluation:
    def progress(_: Any, done: int, total: int, cost: float) -> None:
        del total, cost
        print(done, flush=True)

    async with make_engine(folder) as engine:
        options = EvaluationOptions(parallel=parallel)
        runner = EvaluationRunner(LocalCaller(engine.context), options)
        return await runner.run([make_suite(cases)], progress if tell else None)


def summarize(evaluation: Evaluation) -> list[list[Any]]:
    """Return what two reports of the same suite have in common: everything but ids and times."""
    return [
        [each.case, each.state, each.answer, each.steps, each.cost, each.unrecorded, each.digest]
        for each in evaluation.results
    ]


# ── Killed ──


def run_child(folder: Path, cases: int, kill_after: int | None) -> bool:
    """Evaluate in a process, which is killed after so many results. Return whether it ended by itself."""
    command = [sys.executable, "-m", "bench.evaluations", "--child", str(folder), "--cases", str(cases)]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    for line in process.stdout:
        if kill_after is not None and line.strip().isdigit() and int(line) >= kill_after:
            process.kill()
    return process.wait() == 0


def measure_kills(cases: int) -> bool:
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as other:
        began = time.monotonic()
        assert run_child(Path(one), cases, None)
        took = time.monotonic() - began
        for number in range(1, KILLS + 1):
            assert not run_child(Path(other), cases, cases * number // (KILLS + 1)), "it ended before it was killed"
        assert run_child(Path(other), cases, None)
        first, second = (json.loads((Path(folder) / "report.json").read_text()) for folder in (one, other))
    same = first == second and len(first) == cases
    print(f"{cases} cases, {PARALLEL} at a time: {took:.1f} s; killed {KILLS} times: the report is ", end="")
    print("the same" if same else "different", flush=True)
    return same


# ── Overhead ──


async def measure_plain(cases: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        async with make_engine(Path(folder)) as engine:
            waiting = iter(range(cases))

            async def work() -> None:
                for number in waiting:
                    await engine.run("ada", f"room {number}")

            began = time.process_time()
            await asyncio.gather(*(work() for _ in range(PARALLEL)))
            return time.process_time() - began


async def measure_evaluated(cases: int) -> float:
    with tempfile.TemporaryDirectory() as folder:
        async with make_engine(Path(folder)) as engine:
            runner = EvaluationRunner(LocalCaller(engine.context), EvaluationOptions(parallel=PARALLEL))
            began = time.process_time()
            await runner.run([make_suite(cases)])
            return time.process_time() - began


def measure_overhead(cases: int) -> bool:
    asyncio.run(measure_plain(50))
    asyncio.run(measure_evaluated(50))
    pairs = [(asyncio.run(measure_plain(cases)), asyncio.run(measure_evaluated(cases))) for _ in range(3)]
    plain, evaluated = (min(values) for values in zip(*pairs, strict=True))
    more = evaluated / plain - 1
    found = [f"{name} {took / cases * 1000:.2f} ms" for name, took in (("plain", plain), ("evaluated", evaluated))]
    print(f"processor time of a run: {', '.join(found)} ({more:+.0%})", flush=True)
    return more <= ALLOWED_OVERHEAD


# ── Baseline ──


def ignore(operation: object) -> None:
    """Let every operation of the simulated store succeed."""


def measure_baseline(wanted: int) -> bool:
    from treadle.operations.replay_service import read_recorded_run
    from treadle.replay.replay import replay
    from treadle.testing.simulation import scenario
    from treadle.testing.simulation.__main__ import schedule_of

    worlds: list[Any] = []
    check: Any = scenario.check_journals

    def keep(world: Any, *more: Any) -> Any:
        worlds.append(world)
        return check(world, *more)

    async def read(process: Any) -> list[Any]:
        store, sessions, approvals = process.store, process.deps.session.sessions, process.deps.tools.approvals
        return [
            await read_recorded_run(run.origin.run_id, store, sessions, approvals)
            for run in await store.find(limit=100)
        ]

    setattr(scenario, "check_journals", keep)  # noqa: B010 -- a seam of the simulation
    logging.disable(logging.CRITICAL)
    counts: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    seed = 0
    while counts["runs"] < wanted:
        scenario.simulate(schedule_of(seed))
        process = worlds.pop().start(ignore, sole=True)
        for record in asyncio.run(read(process)):
            replayed = replay(record, process.deps.tools.tools)
            counts["runs"] += 1
            counts["differ"] += replayed.divergence is not None
            counts["cannot"] += bool(replayed.cannot)
            kinds.update({event.type for event in record.events})
            if replayed.divergence is not None:
                print(f"seed {seed}: {record.origin.run_id} differs at event {replayed.divergence.sequence}")
        seed += 1
    shown = ", ".join(f"{name} {kinds[name]}" for name in SHOWN)
    print(f"baseline: {counts['runs']} runs of {seed} seeds, {counts['differ']} differ", end=", ")
    print(f"{counts['cannot']} cannot be replayed to the end; runs with {shown}", flush=True)
    return counts["differ"] == 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1000)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--measured", type=int, default=300)
    parser.add_argument("--child", type=Path)
    parser.add_argument("--only", choices=("baseline", "kills", "overhead"))
    options = parser.parse_args()
    if options.child is not None:
        found = asyncio.run(evaluate(options.child, options.cases, PARALLEL, tell=True))
        (options.child / "report.json").write_text(json.dumps(summarize(found)))
        return 0
    passed = [
        measure()
        for name, measure in (
            ("overhead", lambda: measure_overhead(options.measured)),
            ("kills", lambda: measure_kills(options.cases)),
            ("baseline", lambda: measure_baseline(options.runs)),
        )
        if options.only in (None, name)
    ]
    return 0 if all(passed) else 1


if __name__ == "__main__":
    sys.exit(main())
