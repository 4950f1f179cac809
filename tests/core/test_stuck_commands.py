"""Commands that fail: a series of them is stuck, whatever their arguments; a loop of edits and tests is not."""

import pytest

from tests.core.run_scenario import RunScenario, use
from treadle.core.guards import stuck
from treadle.core.steps import CallModel, Finish
from treadle.core.tools.ledger import Call
from treadle.domain.tools import Effect, ToolSpec


def tool(name: str, effect: Effect) -> ToolSpec:
    return ToolSpec(name, f"{name}.", {}, effect=effect)


TOOLS = (tool("bash", "external"), tool("read_file", "read"), tool("edit_file", "write"), tool("grep", "read"))


def outcome(call: Call) -> str:
    """Edits and reads succeed; every command fails in a way of its own."""
    if call.name == "bash":
        raise RuntimeError(f"exit status 1: {call.call_id}")
    return f"{call.name} {call.call_id}"


def every_call_fails(call: Call) -> str:
    raise RuntimeError(f"{call.name} failed: {call.call_id}")


def test_fifty_failing_commands_with_different_arguments_do_not_pass() -> None:
    scenario, number = RunScenario(*TOOLS, limits={"max_steps": 200}), 0
    while number < 50 and not isinstance(scenario.decision(), Finish):
        number += 1
        scenario.turn(use("bash", command=f"try {number}"), answer=every_call_fails)
    step = scenario.decision()
    assert isinstance(step, Finish)
    assert step.outcome.kind == "stuck"
    assert number < 2 * stuck.FAILURES_STOP


def test_fifty_failing_calls_of_different_tools_do_not_pass() -> None:
    tools = [tool(f"tool_{letter}", "read") for letter in "abcdefghijkl"]
    scenario = RunScenario(*tools, limits={"max_steps": 200})
    for number in range(50):
        if isinstance(scenario.decision(), Finish):
            break
        scenario.turn(use(tools[number % len(tools)].name, n=number), answer=every_call_fails)
    step = scenario.decision()
    assert isinstance(step, Finish)
    assert step.outcome.kind == "stuck"


@pytest.mark.parametrize(
    "between", [("edit_file",), ("read_file", "edit_file"), ("grep", "read_file", "edit_file")]
)
def test_tests_that_fail_between_edits_are_not_stuck(between: tuple[str, ...]) -> None:
    scenario = RunScenario(*TOOLS, limits={"max_steps": 500})
    for number in range(40):
        scenario.turn(use("bash", command="pytest -q"), answer=outcome)
        scenario.turn(use("bash", command=f"pytest -q -k test_{number}"), answer=outcome)
        for name in between:
            scenario.turn(use(name, path=f"file_{number}"), answer=outcome)
    step = scenario.decision()
    assert isinstance(step, CallModel)
    assert step.events == ()
