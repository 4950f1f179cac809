"""Replies with very many tool calls: the excess is refused, and the cost per call does not grow."""

from time import process_time

import pytest

from tests.core.run_scenario import READ, RunScenario, spec, use
from treadle.core.steps import CallModel, RunTools
from treadle.core.tools.plan import plan_calls
from treadle.domain import events as e
from treadle.domain.tools import ToolSpec

CHEAP = spec("cheap", parallel=True)


def test_calls_beyond_the_limit_are_refused_and_the_others_run() -> None:
    scenario = RunScenario(READ)
    scenario.asks()
    scenario.replies(*(use("read", f"c{number}", path=str(number)) for number in range(200)))
    step = scenario.decision()
    assert isinstance(step, RunTools)
    assert (len(step.run), len(step.refuse)) == (0, 72)
    assert isinstance(scenario.works(), CallModel)
    assert len(scenario.ran) == 128
    refused = [error for error in scenario.errors.values() if error.kind == "too_many"]
    assert [error.call_id for error in refused] == [f"c{number}" for number in range(128, 200)]
    assert "at most 128 tool calls, and this one has 200" in refused[0].content
    assert scenario.state.ledger.failures == {}, "it says nothing about the tool"
    assert len(scenario.state.transcript.messages[-1].parts) == 200, "every call has its result"


def test_the_limit_of_calls_can_be_set() -> None:
    scenario = RunScenario(READ, limits={"max_calls": 2})
    scenario.asks()
    scenario.replies(*(use("read", path=str(number)) for number in range(3)))
    scenario.works()
    assert len(scenario.ran) == 2


def cpu_seconds(count: int, tool: ToolSpec, paths: bool) -> float:
    """Return what it takes to plan one reply with so many calls, start and end all of them."""
    best = 1e9
    for _ in range(3):
        scenario = RunScenario(tool, limits={"max_calls": count})
        scenario.asks()
        began = process_time()
        scenario.replies(
            *(use(tool.name, f"c{n}", path=f"folder {n}/file" if paths else str(n)) for n in range(count))
        )
        step = plan_calls(scenario.state, scenario.now)
        assert isinstance(step, RunTools)
        assert len(step.run) == count
        for number in range(count):
            scenario.happens(e.ToolCallStart(f"c{number}", tool.name, "{}", "key"))
        for number in range(count):
            scenario.happens(e.ToolCallEnd(f"c{number}", tool.name, f"result {number}", 1))
        assert not scenario.state.open_calls
        best = min(best, process_time() - began)
    return best


@pytest.mark.parametrize(
    ("tool", "paths"),
    [(CHEAP, False), (spec("write", "write", paths=("path",)), True)],
    ids=["concurrent", "disjoint paths"],
)
def test_four_times_the_calls_cost_about_four_times_as_much(tool: ToolSpec, paths: bool) -> None:
    """Quadratic work would make it sixteen times; CPU time is compared, in one process."""
    assert cpu_seconds(4000, tool, paths) < 9 * cpu_seconds(1000, tool, paths)
