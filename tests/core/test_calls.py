"""Which calls run, concurrently or one after the other, and the results of those that do not."""

from tests.core.run_scenario import AGAIN, OTHER_READ, READ, WRITE, RunScenario, fails, spec, use
from tests.observed import all_told
from treadle.core.steps import Finish, RunTools
from treadle.core.tools.plan import OUTCOME_UNKNOWN
from treadle.domain import events as e
from treadle.domain.messages import ToolResult, ToolUse


def batches(*names: str) -> list[tuple[str, ...]]:
    tools = (READ, OTHER_READ, WRITE, spec("talk", interactive=True), spec("pair", "write", parallel=True))
    scenario = RunScenario(*tools)
    scenario.turn(*(use(name, str(index), n=index) for index, name in enumerate(names)))
    return scenario.batches


def test_reads_run_together() -> None:
    assert batches("read", "look", "read") == [("0", "1", "2")]


def test_a_writer_is_a_barrier() -> None:
    assert batches("read", "look", "write", "read", "look") == [("0", "1"), ("2",), ("3", "4")]


def test_writers_run_one_after_the_other() -> None:
    assert batches("write", "write") == [("0",), ("1",)]


def test_an_interactive_tool_is_a_barrier_with_any_effect() -> None:
    assert batches("read", "talk", "read") == [("0",), ("1",), ("2",)]


def test_a_writing_tool_cannot_declare_itself_parallel() -> None:
    assert batches("pair", "read", "pair") == [("0", "1", "2")]


def test_an_unknown_tool_is_refused_with_the_nearest_name() -> None:
    scenario = RunScenario(READ, WRITE)
    scenario.turn(use("raed", path="a"))
    error = scenario.errors["call_1"]
    assert error.kind == "unknown_tool"
    assert error.content == "There is no tool `raed`. Did you mean `read`? Tools you may call: `read`, `write`."
    assert scenario.ran == []


def test_an_unknown_tool_without_a_near_name_lists_the_available_names() -> None:
    scenario = RunScenario(READ)
    scenario.turn(use("xyzzy"))
    assert scenario.errors["call_1"].content == "There is no tool `xyzzy`. Tools you may call: `read`."


def test_an_unknown_tool_does_not_stop_other_calls() -> None:
    scenario = RunScenario(READ)
    scenario.turn(use("nope"), use("read", path="a"), use("nope"))
    assert scenario.ran == ["call_2"]
    results = scenario.state.transcript.messages[-1].parts
    assert [part.call_id for part in results if isinstance(part, ToolResult)] == ["call_1", "call_2", "call_3"]


def test_results_are_in_the_order_of_their_calls() -> None:
    scenario = RunScenario(READ)
    scenario.asks()
    scenario.replies(use("read", "a", n=1), use("read", "b", n=2), use("read", "c", n=3))
    scenario.happens(*(e.ToolCallStart(name, "read", "{}", "k") for name in "abc"))
    scenario.happens(*(e.ToolCallEnd(name, "read", name.upper(), 1) for name in "cab"))
    last = scenario.state.transcript.messages[-1]
    assert all_told(last.parts) == (ToolResult("a", "A"), ToolResult("b", "B"), ToolResult("c", "C"))


def test_the_conversation_has_no_results_before_all_calls_have_theirs() -> None:
    scenario = RunScenario(READ)
    scenario.asks()
    scenario.replies(use("read", "a", n=1), use("read", "b", n=2))
    scenario.happens(e.ToolCallStart("b", "read", "{}", "k"), e.ToolCallEnd("b", "read", "B", 1))
    assert scenario.state.transcript.messages[-1].role == "assistant"


def start_calls(*calls: ToolUse) -> RunScenario:
    """Return a run whose worker died after these calls had started."""
    scenario = RunScenario(READ, WRITE, AGAIN)
    scenario.asks()
    scenario.replies(*calls)
    scenario.happens(*(e.ToolCallStart(call.call_id, call.name, call.arguments, "key") for call in calls))
    return scenario


def test_a_started_call_that_may_be_repeated_runs_again() -> None:
    scenario = start_calls(use("again", "a"))
    step = scenario.decision()
    assert isinstance(step, RunTools)
    assert [call.call_id for call in step.run] == ["a"]
    assert step.run[0].attempts == 1


def test_a_started_call_that_cannot_be_repeated_is_reported_as_unknown() -> None:
    scenario = start_calls(use("write", "a"))
    scenario.works()
    assert scenario.ran == []
    assert scenario.errors["a"].content == OUTCOME_UNKNOWN
    assert scenario.errors["a"].kind == "interrupted"


def test_ended_calls_keep_their_results_after_a_crash_and_open_ones_are_repeated_or_unknown() -> None:
    calls = [
        use(name, str(index), n=index) for index, name in enumerate(("read", "read", "again", "write", "read"))
    ]
    scenario = start_calls(*calls)
    scenario.happens(*(e.ToolCallEnd(name, "read", f"result {name}", 1) for name in "014"))
    scenario.works(lambda call: "ran again")
    last = scenario.state.transcript.messages[-1]
    assert [(part.call_id, part.content) for part in all_told(last.parts)] == [
        ("0", "result 0"),
        ("1", "result 1"),
        ("2", "ran again"),
        ("3", OUTCOME_UNKNOWN),
        ("4", "result 4"),
    ]


def test_calls_that_never_started_run_after_a_crash() -> None:
    scenario = RunScenario(READ, WRITE)
    scenario.asks()
    scenario.replies(use("write", "a"), use("read", "b"))
    scenario.happens(e.ToolCallStart("a", "write", "{}", "k"))
    scenario.works()
    assert scenario.ran == ["b"]
    assert set(scenario.errors) == {"a"}


def test_a_started_call_of_an_ending_run_is_reported_as_unknown() -> None:
    scenario = start_calls(use("write", "a"))
    scenario.happens(e.CancelRequested("enough"))
    step = scenario.decision()
    assert isinstance(step, Finish)
    assert step.events == (e.ToolCallError("a", "write", "interrupted", OUTCOME_UNKNOWN, cause="outcome_unknown"),)


def test_a_failed_call_is_an_error_result() -> None:
    scenario = RunScenario(READ)
    scenario.turn(use("read", "a"), answer=fails)
    assert all_told(scenario.state.transcript.messages[-1].parts) == (
        ToolResult("a", "a went wrong", is_error=True),
    )
