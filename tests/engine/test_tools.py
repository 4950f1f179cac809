"""Tool calls on the real engine: order, concurrency, and every kind of failure."""

import asyncio
import sys
import threading
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.engine.running import Gate, agent, in_virtual_time, journal, opened, until, virtually
from tests.observed import all_told
from treadle.api.engine import HostedEngine
from treadle.domain.events import LlmRequest, ToolCallError, ToolCallStart
from treadle.domain.messages import ToolResult, ToolUse
from treadle.testing.models import ScriptedModel, Silence, ask, call, say


def results(model: ScriptedModel) -> list[ToolResult]:
    """Return the last results that the model got."""
    return list(all_told(model.requests[-1].conversation.messages[-1].parts))


def run_calls(*tools: Any, calls: tuple[ToolUse, ...]) -> tuple[list[ToolResult], treadle.Result]:
    """Return the results of these calls as the model sees them, and how the run ended, in virtual time."""

    async def scenario() -> treadle.Result:
        async with in_virtual_time(model) as engine:
            return await engine.run(agent(tools=tools), "go")

    with ScriptedModel(ask(*calls), say("done")) as model:
        result = virtually(scenario())
    return results(model), result


# ── Side by side ──


def test_results_are_in_the_order_of_the_calls() -> None:
    finished: list[int] = []

    @treadle.tool(effect="read")
    async def wait_for(seconds: int) -> str:
        await asyncio.sleep(seconds)
        finished.append(seconds)
        return f"after {seconds}"

    calls = tuple(call("wait_for", f"c{seconds}", seconds=seconds) for seconds in (3, 1, 2))
    answers, _ = run_calls(wait_for, calls=calls)
    assert finished == [1, 2, 3]
    assert answers == [ToolResult("c3", "after 3"), ToolResult("c1", "after 1"), ToolResult("c2", "after 2")]


def test_reads_run_concurrently() -> None:
    async def scenario() -> None:
        meeting = asyncio.Barrier(2)

        @treadle.tool(effect="read")
        async def meet(name: str) -> str:
            await meeting.wait()  # neither passes until both are here
            return name

        model = ScriptedModel(ask(call("meet", "a", name="x"), call("meet", "b", name="y")), say("done"))
        async with in_virtual_time(model) as engine:
            assert (await engine.run(agent(tools=[meet]), "go")).text == "done"

    virtually(scenario())


def test_a_writer_runs_alone_and_in_order() -> None:
    running: list[str] = []
    beside: dict[str, list[str]] = {}

    async def work(name: str) -> str:
        running.append(name)
        await asyncio.sleep(1)
        beside[name] = sorted(running)
        await asyncio.sleep(1)
        running.remove(name)
        return name

    @treadle.tool(effect="read")
    async def read(name: str) -> str:
        return await work(name)

    @treadle.tool(effect="write")
    async def write(name: str) -> str:
        return await work(name)

    order = (("read", "a"), ("read", "b"), ("write", "c"), ("read", "d"), ("read", "e"))
    answers, _ = run_calls(read, write, calls=tuple(call(tool, name, name=name) for tool, name in order))
    assert beside == {"a": ["a", "b"], "b": ["a", "b"], "c": ["c"], "d": ["d", "e"], "e": ["d", "e"]}
    assert [answer.call_id for answer in answers] == list("abcde")


async def test_the_intent_is_committed_before_the_tool_runs(tmp_path: Path) -> None:
    engine: HostedEngine
    seen: list[str] = []

    @treadle.tool
    async def look_back(context: treadle.ToolContext) -> str:
        events = await engine.service._journal.read(context.run_id)  # pyright: ignore[reportPrivateUsage] -- the journal itself
        seen.extend(event.data.call_id for event in events if isinstance(event.data, ToolCallStart))
        return context.idempotency_key

    model = ScriptedModel(ask(call("look_back", "c1")), say("done"))
    async with opened(tmp_path, model) as engine:
        result = await engine.run(agent(tools=[look_back]), "go")
    assert seen == ["c1"]
    assert results(model) == [ToolResult("c1", f"{result.run_id}/c1")]


# ── What goes wrong ──


@treadle.tool(effect="read")
async def add(a: int, b: int) -> int:
    return a + b


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("{}", "a"),
        ('{"a": 1, "b": "two"}', "b"),
        ("not json", "JSON"),
        ('{"a":1,"b":2,"c":3}', "c"),
        ("[1]", "object"),
    ],
)
def test_invalid_arguments_are_explained_and_nothing_runs(arguments: str, words: str) -> None:
    [answer], result = run_calls(add, calls=(ToolUse("c", "add", arguments),))
    assert answer.is_error
    assert answer.content.startswith("`add` was not run: ")
    assert words in answer.content
    assert result.metrics.actions == 0


def test_arguments_nested_beyond_reason_do_not_break_the_run() -> None:
    [answer], result = run_calls(add, calls=(ToolUse("c", "add", '{"a":' + "[" * 5000 + "]" * 5000 + "}"),))
    assert answer.is_error
    assert result.outcome == "completed"


def test_a_tool_exception_is_returned_with_advice_not_to_invent() -> None:
    @treadle.tool
    async def fail() -> str:
        raise ValueError("the disk is on fire")

    [answer], _ = run_calls(fail, calls=(call("fail", "c"),))
    assert answer.is_error
    assert "`fail` failed: ValueError: the disk is on fire." in answer.content
    assert "Do not make up a result" in answer.content


def test_a_tool_is_stopped_when_its_time_is_up() -> None:
    stopped: list[bool] = []

    @treadle.tool(timeout=7.0)
    async def dawdle() -> str:
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.append(True)
        return "never"

    [answer], _ = run_calls(dawdle, calls=(call("dawdle", "c"),))
    assert "did not end within 7 s" in answer.content
    assert stopped == [True]


def test_an_error_raised_by_a_stopped_tool_is_not_in_the_run() -> None:
    @treadle.tool(timeout=1.0)
    async def stubborn() -> str:
        try:
            await asyncio.sleep(100)
        except asyncio.CancelledError:
            raise RuntimeError("I was disturbed") from None
        return "never"

    async def scenario() -> treadle.Result:
        async with in_virtual_time(ScriptedModel(ask(call("stubborn")), Silence("so far"))) as engine:
            run_id = await engine.submit(agent(tools=[stubborn]), "go")
            await until(engine, run_id, "token")
            await engine.cancel(run_id)
            return await engine.wait(run_id)

    result = virtually(scenario())
    assert (result.outcome, result.text) == ("cancelled", "so far")


def test_a_result_that_timed_out_has_the_kind_timeout() -> None:
    @treadle.tool
    async def slow() -> treadle.Observation:
        return treadle.Observation("half of the output", is_error=True, timed_out=True)

    async def scenario() -> None:
        async with in_virtual_time(ScriptedModel(ask(call("slow")), say("It was slow."))) as engine:
            result = await engine.run(agent(tools=[slow]), "go")
            [error] = [e.data for e in await journal(engine, result.run_id) if isinstance(e.data, ToolCallError)]
        assert (error.kind, error.content.startswith("half of the output")) == ("timeout", True)

    virtually(scenario())


def test_a_timeout_error_that_a_tool_raises_is_a_plain_failure() -> None:
    @treadle.tool(timeout=100.0)
    async def impatient() -> str:
        raise TimeoutError("the other side is slow")

    [answer], _ = run_calls(impatient, calls=(call("impatient", "c"),))
    assert "`impatient` failed: TimeoutError: the other side is slow." in answer.content


@pytest.mark.parametrize("beside", [0, 1])
def test_a_tool_that_cancels_itself_has_failed_and_is_not_run_again(beside: int) -> None:
    runs: list[str] = []

    @treadle.tool(effect="read", repeatable=True)
    async def give_up(n: int) -> str:
        runs.append("run")
        assert len(runs) < 20, "it is run again and again"
        raise asyncio.CancelledError

    calls = tuple(call("give_up", f"c{n}", n=n) for n in range(1 + beside))
    answers, result = run_calls(give_up, calls=calls)
    assert result.outcome == "completed"
    assert all(answer.is_error for answer in answers)
    assert len(runs) == 1 + beside


async def test_a_tool_that_exits_does_not_take_the_engine_with_it(tmp_path: Path) -> None:
    @treadle.tool
    def leave() -> str:
        sys.exit(2)

    async def scenario() -> treadle.Result:
        async with opened(tmp_path, ScriptedModel(ask(call("leave")), say("done"))) as engine:
            return await engine.run(agent(tools=[leave]), "go")

    assert (await scenario()).outcome == "completed"


@pytest.mark.parametrize("place", ["result", "error", "progress"])
def test_invalid_unicode_is_replaced_and_not_lost(place: str) -> None:
    @treadle.tool
    async def list_files(context: treadle.ToolContext) -> str:
        name = b"caf\xe9.txt".decode("utf-8", "surrogateescape")
        if place == "error":
            raise FileNotFoundError(name)
        if place == "progress":
            context.progress(name)
            return "caf"
        return name

    async def scenario() -> treadle.Result:
        async with in_virtual_time(model) as engine:
            callbacks = treadle.Callbacks(on_tool_progress=lambda event: None)  # a server listens
            return await engine.run(agent(tools=[list_files]), "go", callbacks)

    with ScriptedModel(ask(call("list_files")), say("done")) as model:
        result = virtually(scenario())
    assert result.outcome == "completed"
    [answer] = results(model)
    assert "caf" in answer.content
    assert answer.is_error is (place == "error")


def test_progress_may_be_shown_from_a_thread(tmp_path: Path) -> None:
    shown = threading.Event()

    @treadle.tool
    def compute(context: treadle.ToolContext) -> str:
        context.progress("half way")
        return "seen" if shown.wait(5) else "not seen"

    async def scenario() -> str:
        model = ScriptedModel(ask(call("compute")), say("done"))
        async with opened(tmp_path, model) as engine:
            run_id = await engine.submit(agent(tools=[compute]), "go")
            await until(engine, run_id, "tool_call_progress")
            shown.set()
            await engine.wait(run_id)
        return results(model)[0].content

    assert asyncio.run(scenario(), debug=True) == "seen"


def test_an_unknown_tool_suggests_the_nearest_name() -> None:
    [answer], _ = run_calls(add, calls=(call("ad", "c"),))
    assert answer.is_error
    assert "Did you mean `add`?" in answer.content


def test_calls_with_the_same_or_no_id_are_distinguished() -> None:
    names = ("x", "x", "", "")
    calls = tuple(ToolUse(name, "add", f'{{"a": {number}, "b": 0}}') for number, name in enumerate(names))
    answers, _ = run_calls(add, calls=calls)
    assert [answer.content for answer in answers] == ["0", "1", "2", "3"]
    assert len({answer.call_id for answer in answers}) == 4
    assert all(answer.call_id for answer in answers)


async def test_a_warning_of_a_guard_is_sent_with_the_request_and_counted(tmp_path: Path) -> None:
    again = ask(call("add", a=1, b=2))
    model = ScriptedModel(again, again, say(""), say("done"))
    async with opened(tmp_path, model) as engine:
        result = await engine.run(agent(tools=[add]), "go")
        events = await journal(engine, result.run_id)
    said = [event.data.messages for event in events if isinstance(event.data, LlmRequest)]
    assert said == [len(request.conversation.messages) for request in model.requests]


async def test_a_cancel_stops_a_call_in_progress_and_the_end_lists_it(tmp_path: Path) -> None:
    gate = Gate()
    stopped: list[str] = []

    @treadle.tool(effect="read")
    async def hold(name: str) -> str:
        try:
            await gate.pass_through()
        finally:
            stopped.append(name)
        return name

    model = ScriptedModel(ask(call("hold", "c1", name="a"), call("hold", "c2", name="b")))
    async with opened(tmp_path, model) as engine:
        run_id = await engine.submit(agent(tools=[hold]), "go")
        await gate.reached.wait()
        await engine.cancel(run_id)
        result = await engine.wait(run_id)
        events = await journal(engine, run_id)
    assert sorted(stopped) == ["a", "b"]
    assert result.outcome == "cancelled"
    assert result.stopped == ("hold (c1)", "hold (c2)")
    errors = [event.data for event in events if isinstance(event.data, ToolCallError)]
    assert [(error.call_id, error.kind) for error in errors] == [("c1", "cancelled"), ("c2", "cancelled")]


def test_the_deadline_stops_a_call_in_progress() -> None:
    @treadle.tool
    async def dawdle() -> str:
        await asyncio.sleep(100)
        return "never"

    async def scenario() -> treadle.Result:
        async with in_virtual_time(ScriptedModel(ask(call("dawdle"), text="I try."))) as engine:
            return await engine.run(agent(tools=[dawdle], limits={"deadline": 10}), "go")

    result = virtually(scenario())
    assert (result.outcome, result.text) == ("deadline", "I try.")
    assert result.metrics.duration_ms == pytest.approx(10_000, abs=100)
