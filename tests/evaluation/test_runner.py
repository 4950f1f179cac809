"""Evaluations: cases made of recorded runs, their lanes, their cost, and what a crash leaves."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec

from treadle.api.engine import HostedEngine, create_engine
from treadle.config.home import Home
from treadle.domain.evaluations import Evaluation
from treadle.domain.suites import Case, Check, Contains, FileCheck, FunctionCheck, JudgeCheck, Suite, SuiteTarget
from treadle.evaluation.report import make_html, make_junit
from treadle.evaluation.runner import EvaluationOptions, EvaluationRunner
from treadle.evaluation.suite_file import SuiteFile, add_case, read_suite
from treadle.operations import evaluations, feedback
from treadle.operations.operation import LocalCaller
from treadle.operations.recorded_cases import make_case
from treadle.ports.model import ModelRequest
from treadle.testing.models import FunctionModel, ScriptStep, ask, call, say

AGENT = "name: ada\nmodel: fake/m\npersona: {persona}\ntools: [look]\nmemory: {{remember: false}}\n"
looked: list[str] = []


def look(place: str) -> str:
    """Look somewhere."""
    looked.append(place)
    return f"There is a key in {place}."


def answer(request: ModelRequest) -> ScriptStep:
    system, last = request.preamble.system, request.conversation.messages[-1]
    if "Score how well" in last.text:
        return say('{"score": 0.9, "reason": "It names the hall."}')
    if last.role == "tool":
        return say("In the hall." if "wrong" not in system else "I do not know.")
    return ask(call("look", place="the cellar" if "elsewhere" in system else "the hall"))


@asynccontextmanager
async def opened(
    tmp_path: Path, persona: str = "Be brief.", model: Callable[..., Any] = answer
) -> AsyncGenerator[HostedEngine]:
    home = Home(tmp_path / "home")
    file = home.path / "agents" / "ada" / "config.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(AGENT.format(persona=persona))
    (file.parent.parent / "judge").mkdir(exist_ok=True)
    (file.parent.parent / "judge" / "config.yaml").write_text("name: judge\nmodel: fake/m\n")
    engine = create_engine(f"sqlite:///{tmp_path / 'treadle.db'}", home=home)
    engine.add_model("fake", FunctionModel(model))
    engine.add_tools(look)
    async with engine:
        yield engine


async def run_suite(engine: HostedEngine, suite: SuiteFile, **options: Any) -> Evaluation:
    caller = LocalCaller(engine.context)
    runner = EvaluationRunner(caller, EvaluationOptions(**options))
    return await runner.run([suite])


async def record(engine: HostedEngine, folder: Path, *checks: Check) -> SuiteFile:
    """Run the agent once, and return a suite with a case that is made of the run."""
    ended = await engine.run("ada", "Where is the key?")
    events = [event async for event in engine.service.read_stored(ended.run_id)]
    agent, case = make_case(events, None, "", checks)
    add_case(folder / "evals" / "keys.yaml", agent, case)
    return read_suite("keys", folder)


def states(evaluation: Evaluation) -> list[str]:
    return [each.state for each in evaluation.results]


async def test_a_recorded_run_is_a_case_without_side_effects_in_every_lane(tmp_path: Path) -> None:
    looked.clear()
    async with opened(tmp_path) as engine:
        suite = await record(engine, tmp_path, Contains("hall"))
        for lane in ("observed", "baseline", "candidate"):
            assert states(await run_suite(engine, suite, lane=lane)) == ["passed"], lane
        assert looked == ["the hall"], "only the recorded run has looked"
    async with opened(tmp_path, "You are wrong.") as engine:
        found = await run_suite(engine, suite, lane="baseline")
        assert found.results[0].grades[0].reason.startswith("event "), found.results
        [result] = (await run_suite(engine, suite)).results
        assert (result.state, result.grades[0].check) == ("failed", "contains")
    async with opened(tmp_path, "Look elsewhere.") as engine:
        [result] = (await run_suite(engine, suite)).results
        assert (result.state, result.unrecorded) == ("failed", 1)
        assert "`look` has no recorded result" in result.grades[-1].reason
        stubbed = with_case(suite, unrecorded="stub")
        assert (await run_suite(engine, stubbed)).results[0].state == "passed"
        assert looked == ["the hall"]
        executed = with_case(suite, unrecorded="execute")
        assert (await run_suite(engine, executed)).results[0].state == "passed"
        assert looked == ["the hall", "the cellar"]


def with_case(suite: SuiteFile, **changes: Any) -> SuiteFile:
    [case] = suite.suite.cases
    changed = msgspec.structs.replace(case, **changes)
    return msgspec.structs.replace(suite, suite=msgspec.structs.replace(suite.suite, cases=(changed,)))


def make_suite(*cases: Case, targets: tuple[SuiteTarget, ...] = (SuiteTarget(agent="ada"),)) -> SuiteFile:
    return SuiteFile("made", Path("made.yaml").absolute(), Suite(targets=targets, cases=cases))


async def test_files_functions_judges_and_targets_are_graded(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "rules.py").write_text("def short(run):\n    return len(run.answer) < 20, 'its length'\n")
    checks = (
        FileCheck("note.txt", contains="hello"),
        FunctionCheck("rules.py:short"),
        JudgeCheck("It names the hall.", agent="judge"),
    )
    case = Case(name="all", message="Where is the key?", files={"note.txt": "hello"}, checks=checks)
    cases = [msgspec.structs.replace(case, name=f"all {n}", checks=(*checks, Contains("hall"))) for n in range(6)]
    async with opened(tmp_path) as engine:
        targets = (SuiteTarget(agent="ada"), SuiteTarget(agent="ada", name="one step", limits={"max_steps": 1}))
        found = await run_suite(engine, make_suite(*cases, targets=targets), parallel=3)
        assert found.targets[0].rate.passed == 6, [each.reason for each in found.results]
        assert found.targets[0].mean_score == 0.9
        assert (found.comparisons[0].worse, found.comparisons[0].verdict) == (6, "worse")
        caller = LocalCaller(engine.context)
        await caller.call(evaluations.RECORD, evaluations.RecordEvaluation(found))
        assert await caller.call(evaluations.SHOW, evaluations.OneEvaluation("made")) == found
        assert 'failures="6"' in make_junit(found)
        assert "<script" not in make_html(found)
        run_id = found.results[0].run_id
        assert run_id is not None
        await caller.call(feedback.GIVE, feedback.GiveFeedback(run_id, 0.0, "No."))
        await caller.call(feedback.GIVE, feedback.GiveFeedback(run_id, 1.0, "Yes."))
        given = (await caller.call(feedback.LIST, feedback.ListFeedback(min_score=0.5))).items
        assert [(each.run_id, each.score, each.note) for each in given] == [(run_id, 1.0, "Yes.")]


async def test_an_evaluation_continues_where_it_stopped_and_pays_nothing_twice(tmp_path: Path) -> None:
    asked: list[str] = []
    stop = asyncio.Event()

    async def count(request: ModelRequest) -> ScriptStep:
        asked.append(request.conversation.messages[-1].text)
        if len(asked) == 7:
            stop.set()
            await asyncio.Event().wait()
        return say("Yes.")

    cases = [Case(name=f"case {n}", message=f"Question {n}", checks=(Contains("Yes"),)) for n in range(12)]
    async with opened(tmp_path, model=count) as engine:
        running = asyncio.ensure_future(run_suite(engine, make_suite(*cases), parallel=1))
        await stop.wait()
        running.cancel()
        await asyncio.wait({running})
    async with opened(tmp_path, model=count) as engine:
        found = await run_suite(engine, make_suite(*cases), parallel=4)
        assert states(found) == ["passed"] * 12
        assert len(asked) == 13, "the call that was lost is the only one that is repeated"
        again = await run_suite(engine, make_suite(*cases), parallel=4)
        assert [each.run_id for each in again.results] == [each.run_id for each in found.results]
        assert len(asked) == 13
        await run_suite(engine, make_suite(cases[0]), repeat=2)
        assert len(asked) == 14
