"""Child runs: a parent starts them, waits without occupying a worker, and is told of each end once."""

import asyncio
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import treadle
from tests.engine.running import agent, in_virtual_time, journal, opened, types, virtually
from treadle.api.engine import HostedEngine
from treadle.domain.events import (
    AgentEnd,
    AgentSpawn,
    AgentWaiting,
    BudgetHint,
    RunEnd,
    RunQueued,
    RunStart,
    ToolCallEnd,
    ToolCallError,
)
from treadle.domain.ids import RunId
from treadle.domain.runs import Usage
from treadle.operations.usage import compute_usage
from treadle.ports.journal import RunFilter
from treadle.ports.model import ModelRequest
from treadle.testing.models import FunctionModel, ScriptStep, ask, call, say

Policy = Callable[[ModelRequest], ScriptStep]


@treadle.tool(effect="read")
async def look(at: str) -> str:
    """Look."""
    return f"saw {at}"


def last_said(request: ModelRequest) -> str:
    return request.conversation.messages[-1].text


def first_said(request: ModelRequest) -> str:
    return request.conversation.messages[0].text


def results(request: ModelRequest) -> int:
    return sum(message.role == "tool" for message in request.conversation.messages)


async def children_of(engine: HostedEngine, run_id: str) -> list[str]:
    found = await engine.service.runs(RunFilter(parent_run_id=RunId(run_id)))
    return [record.origin.run_id for record in reversed(found)]


def of(events: list[Any], kind: type) -> list[Any]:
    return [event.data for event in events if isinstance(event.data, kind)]


def test_the_output_of_a_child_run_is_the_result_of_the_call() -> None:
    def policy(request: ModelRequest) -> ScriptStep:
        if first_said(request) == "go":
            return say("done") if results(request) else ask(call("agent_spawn", message="add 2 and 3"))
        return say("5")

    async def work() -> None:
        async with in_virtual_time(FunctionModel(policy)) as engine:
            result = await engine.run(agent(tools=["agent_spawn"]), "go")
            assert (result.outcome, result.text) == ("completed", "done")
            events = await journal(engine, result.run_id)
            [spawn], [end], [given] = of(events, AgentSpawn), of(events, AgentEnd), of(events, ToolCallEnd)
            assert given.content == "5"
            assert (end.outcome, end.run_id, end.metrics.steps) == ("completed", spawn.run_id, 1)
            child = await journal(engine, spawn.run_id)
            [queued] = of(child, RunQueued)
            assert child[0].origin.parent_run_id == result.run_id
            assert (queued.lineage.root, queued.lineage.depth) == (result.run_id, 1)
            assert types(events).count("run_waiting") == 1

    virtually(work())


def spawning(*tasks: str, answer: Policy | None = None, **more: Any) -> Policy:
    """One that begins a child for each task in its first turn; children answer with what they were asked."""

    def policy(request: ModelRequest) -> ScriptStep:
        if first_said(request) != "go":
            return answer(request) if answer else say(f"did {first_said(request)}")
        if results(request):
            return say("done")
        return ask(*(call("agent_spawn", message=task, **more) for task in tasks))

    return policy


def test_child_runs_of_one_turn_run_concurrently_and_answer_in_order() -> None:
    running, most = 0, 0

    async def nap(request: ModelRequest) -> ScriptStep:
        nonlocal running, most
        if first_said(request) == "go":
            return spawning("a", "b", "c")(request)
        running, most = running + 1, max(most, running + 1)
        await asyncio.sleep({"a": 3, "b": 2, "c": 1}[first_said(request)])
        running -= 1
        return say(f"did {first_said(request)}")

    async def work() -> None:
        async with in_virtual_time(FunctionModel(nap)) as engine:
            result = await engine.run(agent(tools=["agent_spawn"]), "go")
            events = await journal(engine, result.run_id)
            ended = {data.call_id: data.content for data in of(events, ToolCallEnd)}
            assert [ended[data.call_id] for data in of(events, AgentSpawn)] == ["did a", "did b", "did c"]
            assert result.metrics.duration_ms < 3500

    virtually(work())
    assert most == 3


def test_concurrent_child_runs_are_limited_and_the_rest_wait() -> None:
    running, most = 0, 0

    async def nap(request: ModelRequest) -> ScriptStep:
        nonlocal running, most
        if first_said(request) == "go":
            return spawning(*"abcdefg")(request)
        running, most = running + 1, max(most, running + 1)
        await asyncio.sleep(1)
        running -= 1
        return say("ok")

    async def work() -> None:
        async with in_virtual_time(FunctionModel(nap)) as engine:
            hero = agent(tools=["agent_spawn"], limits={"max_children": 3})
            result = await engine.run(hero, "go")
            assert result.outcome == "completed"
            assert len(await children_of(engine, result.run_id)) == 7

    virtually(work())
    assert most == 3


def test_the_number_of_runs_in_a_tree_is_limited() -> None:
    async def work() -> None:
        async with in_virtual_time(FunctionModel(spawning(*"abcdef"))) as engine:
            hero = agent(tools=["agent_spawn"], limits={"max_tree": 4})
            result = await engine.run(hero, "go")
            events = await journal(engine, result.run_id)
            assert result.outcome == "completed"
            assert len(of(events, AgentSpawn)) == 4
            refused = of(events, ToolCallError)
            assert len(refused) == 2
            assert "may have 4 runs" in refused[0].content

    virtually(work())


def test_endless_spawning_ends_at_the_limits() -> None:
    async def work() -> None:
        storm = FunctionModel(lambda _: ask(*(call("agent_spawn", message=f"again {n}") for n in range(4))))
        async with in_virtual_time(storm) as engine:
            result = await engine.run(agent(tools=["agent_spawn"]), "go")
            everyone = await engine.service.runs(limit=500)
            assert len(everyone) == 33
            assert result.outcome == "stuck"
            assert {record.outcome for record in everyone} <= {"stuck", "cancelled"}
            depths = set[int]()
            for record in everyone:
                [queued] = of(await journal(engine, record.origin.run_id), RunQueued)
                depths.add(0 if queued.lineage is None else queued.lineage.depth)
            assert depths == {0, 1, 2, 3}

    virtually(work())


def test_a_child_run_has_no_tool_that_its_parent_lacks() -> None:
    async def work() -> None:
        asked = call("invoke_agent", agent="other", message="task")
        policy: Policy = lambda request: (  # noqa: E731 -- one expression
            (say("done") if results(request) else ask(asked)) if first_said(request) == "go" else say("ok")
        )
        async with in_virtual_time(FunctionModel(policy)) as engine:
            engine.add_agents(agent(name="other", tools=[look, "bash", "write_file"]))
            result = await engine.run(agent(tools=["invoke_agent", look]), "go")
            [spawn] = of(await journal(engine, result.run_id), AgentSpawn)
            assert spawn.withheld == ("bash", "write_file")
            [start] = of(await journal(engine, spawn.run_id), RunStart)
            assert [tool.name for tool in start.tools] == ["look"]

    virtually(work())


def test_cancel_reaches_every_run_of_the_tree_and_names_it() -> None:
    async def policy(request: ModelRequest) -> ScriptStep:
        said = first_said(request)
        if said in ("go", "level 1"):
            return ask(call("agent_spawn", message="level 1" if said == "go" else "level 2"))
        await asyncio.sleep(1000)
        return say("never")

    async def work() -> None:
        async with in_virtual_time(FunctionModel(policy)) as engine:
            run_id = await engine.submit(agent(tools=["agent_spawn"]), "go")
            await asyncio.sleep(10)
            assert (await engine.service.run(RunId(run_id))).status == "waiting"
            await engine.cancel(run_id)
            result = await engine.wait(run_id)
            assert result.outcome == "cancelled"
            [child] = await children_of(engine, run_id)
            [grandchild] = await children_of(engine, child)
            for each in (child, grandchild):
                assert (await engine.service.run(RunId(each))).outcome == "cancelled"
                assert any(each in stopped for stopped in result.stopped), result.stopped
                [end] = of(await journal(engine, each), RunEnd)
                assert end.reason == result.reason, "why is said once, however deep"

    virtually(work())


def test_a_child_that_takes_too_long_is_stopped() -> None:
    async def policy(request: ModelRequest) -> ScriptStep:
        if first_said(request) == "go":
            return say("done") if results(request) else ask(call("agent_spawn", message="long"))
        await asyncio.sleep(10_000)
        return say("never")

    async def work() -> None:
        async with in_virtual_time(FunctionModel(policy)) as engine:
            result = await engine.run(agent(tools=["agent_spawn"], model_settings={}), "go")
            [refused] = of(await journal(engine, result.run_id), ToolCallError)
            assert (refused.kind, "It took longer than 600 s" in refused.content) == ("timeout", True)
            assert 590_000 < result.metrics.duration_ms < 700_000

    virtually(work())


def test_an_interrupt_parks_the_tree_until_it_is_resumed() -> None:
    async def policy(request: ModelRequest) -> ScriptStep:
        if first_said(request) == "go":
            return say("done") if results(request) else ask(call("agent_spawn", message="part"))
        await asyncio.sleep(5 if len(request.conversation.messages) == 1 else 0)
        return say("part done")

    async def work() -> None:
        async with in_virtual_time(FunctionModel(policy)) as engine:
            run_id = await engine.submit(agent(tools=["agent_spawn"]), "go")
            await asyncio.sleep(1)
            await engine.interrupt(run_id)
            await asyncio.sleep(100)
            [child] = await children_of(engine, run_id)
            assert (await engine.service.run(RunId(child))).waiting_for == "interrupted"
            await engine.resume(run_id)
            result = await engine.wait(run_id)
            assert (result.outcome, result.text) == ("completed", "done")
            assert (await engine.service.run(RunId(child))).outcome == "completed"

    virtually(work())


def test_a_message_that_interrupts_supersedes_the_children() -> None:
    async def policy(request: ModelRequest) -> ScriptStep:
        if first_said(request) == "go":
            changed = "stop that" in last_said(request)
            return say("new answer") if changed else ask(call("agent_spawn", message="part"))
        await asyncio.sleep(500)
        return say("part done")

    async def work() -> None:
        async with in_virtual_time(FunctionModel(policy)) as engine:
            run_id = await engine.submit(agent(tools=["agent_spawn"]), "go")
            await asyncio.sleep(1)
            await engine.steer(run_id, "stop that", "interrupt")
            result = await engine.wait(run_id)
            assert (result.outcome, result.text) == ("completed", "new answer")
            assert result.metrics.duration_ms < 60_000
            [child] = await children_of(engine, run_id)
            assert (await engine.service.run(RunId(child))).outcome == "cancelled"

    virtually(work())


def test_agents_that_invoke_each_other_keep_a_session_and_never_deadlock() -> None:
    def policy(request: ModelRequest) -> ScriptStep:
        said, count = first_said(request), results(request)
        if said == "go":
            return [
                ask(call("agent_send", agent="friend", message="first")),
                ask(call("agent_send", agent="friend", message="second")),
                say("done"),
            ][count]
        heard = sum(message.role == "user" for message in request.conversation.messages)
        if heard == 2 and count == 0:
            return ask(call("agent_send", agent="hero", message="what?"))
        return say(f"heard {heard}")

    async def work() -> None:
        async with in_virtual_time(FunctionModel(policy)) as engine:
            engine.add_agents(agent(name="friend", tools=["agent_send"]))
            result = await engine.run(agent(tools=["agent_send"]), "go")
            events = await journal(engine, result.run_id)
            first, second = of(events, AgentSpawn)
            assert first.session_id == second.session_id
            assert [data.content for data in of(events, ToolCallEnd)] == ["heard 1", "heard 2"]
            [refused] = of(await journal(engine, second.run_id), ToolCallError)
            assert "waits for your answer" in refused.content

    virtually(work())


def test_a_child_run_that_cannot_start_is_reported_and_costs_nothing() -> None:
    wrong = [
        call("invoke_agent", agent="nobody", message="x"),
        call("agent_spawn", message="x", model="other/model"),
        call("agent_spawn", message="x", tools=["no_such"]),
        call("agent_spawn", message=""),
    ]

    async def work() -> None:
        model = FunctionModel(lambda request: say("done") if results(request) else ask(*wrong))
        async with in_virtual_time(model) as engine:
            result = await engine.run(agent(tools=["agent_spawn", "invoke_agent"]), "go")
            told = [data.content for data in of(await journal(engine, result.run_id), ToolCallError)]
            assert "`message` must be str of length >= 1" in told[0]
            assert "No agent is called `nobody`" in told[1]
            assert "the model `other/model` may not be asked; these may: `scripted/x`" in told[2]
            assert "no tool is called `no_such`" in told[3]
            assert len(await engine.service.runs()) == 1

    virtually(work())


async def test_the_ceiling_of_a_tree_holds_with_many_children_spending_at_once(tmp_path: Path) -> None:
    used = Usage(1000, 100)
    looks = count()

    async def policy(request: ModelRequest) -> ScriptStep:
        if first_said(request) == "go" and not results(request):
            return ask(*(call("agent_spawn", message=f"part {n}") for n in range(8)), usage=used)
        await asyncio.sleep(0.001)
        return ask(call("look", at=f"{next(looks)}"), usage=used)

    (tmp_path / "home").mkdir()
    prices = "models: {scripted/x: {prices: {input: 100, output: 1000}, max_output: 1000}}"
    (tmp_path / "home" / "config.yaml").write_text(prices)
    async with opened(tmp_path, FunctionModel(policy)) as engine:
        limits = {"cost": 5.0, "max_steps": 1000}
        hero = agent(tools=["agent_spawn", look], limits=limits, model_settings={"max_tokens": 100})
        result = await engine.run(hero, "go")
        costs: list[float] = []
        for record in await engine.service.runs(limit=100):
            [end] = of(await journal(engine, record.origin.run_id), RunEnd)
            costs.append(end.metrics.cost)
            assert end.outcome == ("budget_exhausted" if record.origin.parent_run_id else "stuck"), end
        assert len(costs) == 9
        assert 4.0 < sum(costs) <= 5.0
        assert "agent_spawn" in result.reason  # it has failed eight times


def test_shared_steps_are_counted_over_the_tree() -> None:
    def policy(request: ModelRequest) -> ScriptStep:
        if first_said(request) == "go" and not results(request):
            return ask(*(call("agent_spawn", message=f"part {n}") for n in range(4)))
        return ask(call("look", at=f"{first_said(request)} {results(request)}"))

    async def work() -> None:
        async with in_virtual_time(FunctionModel(policy)) as engine:
            hero = agent(tools=["agent_spawn", look], limits={"max_steps": 20}, budget="shared")
            result = await engine.run(hero, "go")
            steps = 0
            for record in await engine.service.runs(limit=100):
                [end] = of(await journal(engine, record.origin.run_id), RunEnd)
                steps += end.metrics.steps
                assert end.outcome == "max_steps"
            assert steps == 20
            assert "steps together" in result.reason

    virtually(work())


def test_approvals_are_announced_while_a_child_run_works() -> None:
    """Also the people of the root, where it is a child that waits for both."""

    async def policy(request: ModelRequest) -> ScriptStep:
        said = first_said(request)
        if said == "leaf":
            await asyncio.sleep(100)
            return say("leaf done")
        if results(request):
            return say("done")
        if said == "go":
            return ask(call("agent_spawn", message="middle"))
        return ask(call("agent_spawn", message="leaf"), call("look", "c1", at="x"))

    async def work() -> None:
        async with in_virtual_time(FunctionModel(policy)) as engine:
            rules = {"via": "api", "rules": [{"tool": "look", "do": "ask"}]}
            run_id = await engine.submit(agent(tools=["agent_spawn", look], approvals=rules), "go")
            await asyncio.sleep(10)
            [middle] = await children_of(engine, run_id)
            assert (await engine.service.run(RunId(middle))).waiting_for == "approval"
            [waiting] = await engine.service.approvals()
            await engine.decide(waiting.approval_id, "approve")
            assert (await engine.wait(run_id)).outcome == "completed"
            [told] = of(await journal(engine, run_id), AgentWaiting)
            assert (told.run_id, told.reason) == (middle, "approval")

    virtually(work())


def test_calls_that_start_child_runs_are_counted_as_calls() -> None:
    async def work() -> None:
        async with in_virtual_time(FunctionModel(spawning("a", "b"))) as engine:
            hero = agent(tools=["agent_spawn"], quality={"checker": "quality-checker"})
            result = await engine.run(hero, "go")
            assert result.metrics.actions == 2
            lines = {line.key: line.tool_calls for line in await compute_usage(engine.service.accounts)}
            assert lines == {"hero": 2, "quality-checker": 0}

    virtually(work())


def test_hints_of_a_shared_budget_count_the_steps_of_the_tree() -> None:
    def policy(request: ModelRequest) -> ScriptStep:
        if first_said(request) != "go":
            return say("done") if results(request) == 2 else ask(call("look", at=f"{results(request)}"))
        given = results(request)
        return say("all done") if given == 3 else ask(call("agent_spawn", message=f"part {given}"))

    async def work() -> None:
        async with in_virtual_time(FunctionModel(policy)) as engine:
            hero = agent(tools=["agent_spawn", look], limits={"max_steps": 13}, budget="shared", budget_hints=True)
            result = await engine.run(hero, "go")
            assert (result.outcome, result.metrics.steps) == ("completed", 4)
            own = [
                event.data for event in await journal(engine, result.run_id) if isinstance(event.data, BudgetHint)
            ]
            assert [hint.percent for hint in own] == [90]  # by then it has taken three steps, and the others nine
            last = (await children_of(engine, result.run_id))[-1]
            below = of(await journal(engine, last), BudgetHint)
            assert [hint.percent for hint in below] == [70]

    virtually(work())
