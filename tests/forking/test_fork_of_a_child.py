"""A fork of a child run has no parent, and no more rights than the child run."""

from pathlib import Path

import treadle
from tests.engine.running import agent, journal, opened, until
from tests.engine.test_children import children_of, first_said, look, of, results
from tests.engine.test_costs import PRICED
from treadle.domain.events import AgentAnswered, RunQueued, RunStart, ToolCallEnd, ToolCallError
from treadle.ports.model import ModelRequest
from treadle.testing.models import FunctionModel, ScriptStep, ask, call, say


@treadle.tool
async def send_mail(to: str) -> str:
    """Send a mail."""
    raise AssertionError(f"nobody may write to {to}")


def policy(request: ModelRequest) -> ScriptStep:
    """`go` has another look; that one tries what it may not do, too."""
    said, told = first_said(request), results(request)
    if said == "go":
        return say("done") if told else ask(call("agent_spawn", agent="other", message="part"))
    if said == "part" and told == 0:
        return ask(call("look", at="it"), call("send_mail", to="ada"))
    return say("ok")


def make_lead_agent(**more: object) -> treadle.Agent:
    return agent(tools=[look, "agent_spawn", "agent_send"], **more)


async def test_a_fork_of_a_child_and_its_fork_have_no_more_rights_than_the_child(tmp_path: Path) -> None:
    rules = {"rules": [{"tool": "look", "do": "deny"}]}
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.yaml").write_text(PRICED)

    async with opened(tmp_path, FunctionModel(policy)) as engine:
        engine.add_agents(agent(name="other", tools=[look, send_mail]))
        root = await engine.run(
            make_lead_agent(approvals=rules, limits={"cost": 2.5, "max_steps": 7}, budget="shared"), "go"
        )
        before = [event.raw for event in await journal(engine, root.run_id)]
        [old] = await children_of(engine, root.run_id)
        for _ in range(2):
            fork = await engine.fork(old, step=1)
            await engine.wait(fork)
            events = await journal(engine, fork)
            [start], [queued] = of(events, RunStart), of(events, RunQueued)
            assert [tool.name for tool in start.tools] == ["look"]
            assert [error.kind for error in of(events, ToolCallError)] == ["unknown_tool", "denied"]
            assert (queued.agent.limits.cost, queued.agent.limits.max_steps) == (2.5, 7)
            assert events[0].origin.parent_run_id is None
            old = fork
        assert [event.raw for event in await journal(engine, root.run_id)] == before
        free = await engine.fork(old, step=1, agent=agent(name="free", tools=[look]))
        await engine.wait(free)
        assert of(await journal(engine, free), ToolCallEnd), "the agent that the fork names"


async def test_a_fork_of_a_checker_run_has_no_tools_and_is_not_checked(tmp_path: Path) -> None:
    async with opened(tmp_path, FunctionModel(lambda _: say('{"score": 1, "reasons": ""}'))) as engine:
        engine.add_agents(agent(name="other", tools=[look], quality={"checker": "other"}))
        root = await engine.run(agent(quality={"checker": "other"}), "go")
        [judge] = await children_of(engine, root.run_id)
        fork = await engine.fork(judge)
        await engine.wait(fork)
        [start] = of(await journal(engine, fork), RunStart)
        assert start.tools == ()
        assert not await children_of(engine, fork)


async def test_a_fork_of_a_child_does_not_notify_its_parents_but_may_call_them(tmp_path: Path) -> None:
    def talking(request: ModelRequest) -> ScriptStep:
        said, told = first_said(request), results(request)
        if said == "go":
            return say("done") if told else ask(call("agent_spawn", agent="other", message="part"))
        if said != "part" or told > 1:
            return say("ok")
        return ask(call("look", at="it")) if told == 0 else ask(call("agent_send", agent="hero", message="hello"))

    async with opened(tmp_path, FunctionModel(talking)) as engine:
        other = agent(
            name="other", tools=[look, "agent_send"], approvals={"rules": [{"tool": "look", "do": "ask"}]}
        )
        hero = make_lead_agent()
        engine.add_agents(other, hero)
        root = await engine.submit(hero, "go", asker="terminal")
        await until(engine, root, "agent_waiting")
        [waiting] = await engine.service.approvals()
        await engine.decide(waiting.approval_id, "approve")
        await engine.wait(root)
        [old] = await children_of(engine, root)
        refused = [error.content for error in of(await journal(engine, old), ToolCallError)]
        assert "waits for your answer" in refused[0]
        before = [event.raw for event in await journal(engine, root)]
        fork = await engine.fork(old, step=1, asker="terminal")
        await until(engine, fork, "run_waiting")
        [approval] = await engine.service.approvals(fork)
        await engine.decide(approval.approval_id, "approve")
        assert (await engine.wait(fork)).text == "ok"
        events = await journal(engine, fork)
        assert [end.content for end in of(events, ToolCallEnd)][1:] == ["ok"]
        assert not of(events, AgentAnswered)
        assert [event.raw for event in await journal(engine, root)] == before
