"""The time limit of a child run pauses while it, or one of its child runs, waits for a person."""

import asyncio

import pytest

from tests.engine.running import agent, in_virtual_time, journal, types, virtually
from tests.engine.test_children import children_of, first_said, look, of, results
from treadle.api.engine import HostedEngine
from treadle.domain.events import AgentAnswered, AgentEnd, AgentWaiting, RunWaiting, ToolCallError
from treadle.domain.ids import RunId
from treadle.ports.model import ModelRequest
from treadle.testing.models import FunctionModel, ScriptStep, ask, call, say

HOURS = 2 * 3600.0
ASKING = {"via": "api", "rules": [{"tool": "look", "do": "ask"}]}


def make_asking_model(seconds_after: float = 0.0) -> FunctionModel:
    """A child's child wants something that a person must allow, and takes so long afterwards."""

    async def policy(request: ModelRequest) -> ScriptStep:
        match first_said(request), results(request):
            case "go", 0:
                return ask(call("agent_spawn", message="middle"))
            case "middle", 0:
                return ask(call("agent_spawn", message="leaf"))
            case "leaf", 0:
                return ask(call("look", at="x"))
            case "leaf", _:
                await asyncio.sleep(seconds_after)
                return say("leaf done")
            case said, _:
                return say(f"{said} done")

    return FunctionModel(policy)


async def start_and_ask(engine: HostedEngine) -> tuple[str, str, str]:
    """A run that has come to where a run two levels under it waits: those three."""
    root = await engine.submit(agent(tools=["agent_spawn", look], approvals=ASKING), "go")
    await asyncio.sleep(1)
    [middle] = await children_of(engine, root)
    [leaf] = await children_of(engine, middle)
    assert (await engine.service.run(RunId(leaf))).waiting_for == "approval"
    return root, middle, leaf


def test_an_approval_of_a_child_run_can_be_given_hours_later() -> None:
    async def work() -> None:
        async with in_virtual_time(make_asking_model()) as engine:
            root, middle, leaf = await start_and_ask(engine)
            await asyncio.sleep(HOURS)
            for run_id in (root, middle):
                record = await engine.service.run(RunId(run_id))
                assert (record.waiting_for, record.wake_at) == ("child", None), "it is not read meanwhile"
            [waiting] = await engine.service.approvals()
            await engine.decide(waiting.approval_id, "approve")
            assert (await engine.wait(root)).outcome == "completed"
            for run_id in (root, middle):
                events = await journal(engine, run_id)
                [told], [answered] = of(events, AgentWaiting), of(events, AgentAnswered)
                assert (told.run_id, answered.run_id) == (leaf, leaf)
            assert types(await journal(engine, leaf)).count("agent_answered") == 1

    virtually(work())


def test_the_time_limit_of_a_child_run_continues_after_the_answer() -> None:
    async def work() -> None:
        async with in_virtual_time(make_asking_model(seconds_after=100 * HOURS)) as engine:
            root, _, _ = await start_and_ask(engine)
            await asyncio.sleep(HOURS)
            [waiting] = await engine.service.approvals()
            await engine.decide(waiting.approval_id, "approve")
            result = await engine.wait(root)
            assert 600 <= result.metrics.duration_ms / 1000 - HOURS <= 660
            [late] = of(await journal(engine, root), ToolCallError)
            assert late.kind == "timeout"

    virtually(work())


def test_an_interrupted_tree_keeps_its_remaining_time() -> None:
    async def policy(request: ModelRequest) -> ScriptStep:
        if first_said(request) != "go":
            await asyncio.sleep(300)
            return say("part done")
        return say("done") if results(request) else ask(call("agent_spawn", message="part"))

    async def work() -> None:
        async with in_virtual_time(FunctionModel(policy)) as engine:
            root = await engine.submit(agent(tools=["agent_spawn"]), "go")
            await asyncio.sleep(100)
            await engine.interrupt(root)
            await asyncio.sleep(HOURS)
            await engine.resume(root)
            assert (await engine.wait(root)).text == "done"
            [end] = of(await journal(engine, root), AgentEnd)
            assert end.outcome == "completed"

    virtually(work())


@pytest.mark.parametrize("stop", ["leaf", "root"])
def test_a_run_cancelled_during_a_question_stops_waiting(stop: str) -> None:
    async def work() -> None:
        async with in_virtual_time(make_asking_model()) as engine:
            root, middle, leaf = await start_and_ask(engine)
            await asyncio.sleep(HOURS)
            await engine.cancel(leaf if stop == "leaf" else root)
            result = await engine.wait(root)
            assert result.outcome == ("completed" if stop == "leaf" else "cancelled")
            assert [data.run_id for data in of(await journal(engine, root), AgentAnswered)] == [leaf]
            assert [data.run_id for data in of(await journal(engine, middle), AgentAnswered)] == [leaf]

    virtually(work())


def test_a_question_of_a_root_run_notifies_no_parent() -> None:
    async def work() -> None:
        model = FunctionModel(lambda request: say("done") if results(request) else ask(call("look", at="x")))
        async with in_virtual_time(model) as engine:
            root = await engine.submit(agent(tools=[look], approvals=ASKING), "go")
            await asyncio.sleep(1)
            [waiting] = await engine.service.approvals()
            await engine.decide(waiting.approval_id, "approve")
            assert (await engine.wait(root)).outcome == "completed"
            events = await journal(engine, root)
            assert [data.reason for data in of(events, RunWaiting)] == ["approval"]
            assert not of(events, AgentAnswered)

    virtually(work())
