"""Modes while runs work: from the next call on, in child runs, across restarts, with plans, and in replays."""

from pathlib import Path
from typing import Any

from tests.engine.running import agent, journal, opened, types, until
from tests.engine.test_approvals import Post, idle, letter, wait_for_approval
from tests.engine.test_children import first_said, results
from treadle.api.engine import HostedEngine
from treadle.domain.events import AgentTold, ApprovalRequested, ModeChanged, RunQueued, ToolCallError
from treadle.domain.ids import RunId, SessionId
from treadle.domain.modes import ApprovalMode
from treadle.operations.approval_service import Answer
from treadle.ports.model import ModelRequest
from treadle.testing.models import FunctionModel, ScriptedModel, ScriptStep, ask, call, say

ASKS: dict[str, Any] = {"approvals": {"default": "ask"}}
TERMINAL: dict[str, Any] = {"asker": "terminal"}


async def change(engine: HostedEngine, session: str, mode: ApprovalMode | None) -> None:
    await engine.service.modes.change(SessionId(session), mode, "ada")


async def session_of(engine: HostedEngine, run_id: str) -> str:
    return (await engine.service.run(RunId(run_id))).origin.session_id


async def replays(engine: HostedEngine, run_id: str) -> bool:
    found = await engine.service.replay(RunId(run_id))
    assert found.is_same, found
    return True


def write(name: str, call_id: str = "c1") -> ScriptStep:
    return ask(call("write_file", call_id, path=name, content="x"))


async def test_a_mode_applies_from_the_next_call_on_and_in_later_runs(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    (workspace / ".envrc").write_text("")
    model = ScriptedModel(
        write("a"), write("b"), write(".envrc"), say("done"), write("c"), say("again"), write("../w2/d"), say("out")
    )
    hero = agent(tools=["write_file"], workspace=str(workspace), **ASKS)
    (tmp_path / "w2").mkdir()

    async with opened(tmp_path, model) as engine:
        run_id = await engine.submit(hero, "go", **TERMINAL)
        first = await wait_for_approval(engine, run_id)
        session = await session_of(engine, run_id)
        await change(engine, session, "accept_edits")
        assert not (workspace / "a").exists(), "a pending call keeps its question"
        await engine.decide(first.approval_id, "approve")
        event = await until(engine, run_id, "approval_requested", after=9)
        while not (isinstance(event.data, ApprovalRequested) and event.data.approval_id != first.approval_id):
            event = await until(engine, run_id, "approval_requested", after=event.sequence)
        assert (workspace / "b").exists()
        assert event.data.concern == "executed", "a protected file always asks"
        await engine.decide(event.data.approval_id, "deny")
        result = await engine.wait(run_id)
        assert result.text == "done"
        assert await replays(engine, run_id)
        again = await engine.run(hero, "more", session=session)
        assert ((workspace / "c").exists(), again.text) == (True, "again")
        out = await engine.run(hero, "outside", session=session)
        assert (out.text, (tmp_path / "w2" / "d").exists()) == ("out", False), "another folder is not the workspace"


async def test_a_mode_survives_a_restart_and_begins_a_session(tmp_path: Path) -> None:
    post, model = Post(), ScriptedModel(letter("a"), say("done"), letter("b"), say("done"))
    hero = agent(tools=[post.tool])

    async with opened(tmp_path, model) as engine:
        run_id = await engine.submit(hero, "go", mode="ask", **TERMINAL)
        await wait_for_approval(engine, run_id)
        await idle(engine)
        session = await session_of(engine, run_id)
        await change(engine, session, "plan")
    async with opened(tmp_path, model) as engine:
        [request] = await engine.service.approvals()
        engine.add_agents(hero)
        await engine.decide(request.approval_id, "approve")
        assert (await engine.wait(run_id)).text == "done"
        assert post.letters == ["a"], "the reviewer approved this call"
        result = await engine.run(hero, "go on", session=session)
        events = await journal(engine, result.run_id)
        [queued] = [event.data for event in events if isinstance(event.data, RunQueued)]
        [error] = [event.data for event in events if isinstance(event.data, ToolCallError)]
        assert (queued.mode, error.kind, post.letters) == ("plan", "denied", ["a"])
        assert await replays(engine, result.run_id)


async def test_an_approved_plan_ends_plan_mode_in_the_mode_that_the_reviewer_chooses(tmp_path: Path) -> None:
    post = Post()
    plan = ask(call("update_plan", "p1", entries=[{"content": "post a letter"}], for_approval=True))
    model = ScriptedModel(letter("early"), plan, letter("late"), say("done"))
    rules = {"approvals": {"default": "ask", "rules": [{"tool": "post", "do": "auto"}]}}

    async with opened(tmp_path, model) as engine:
        run_id = await engine.submit(
            agent(tools=[post.tool, "update_plan"], **rules), "go", mode="plan", **TERMINAL
        )
        request = await wait_for_approval(engine, run_id)
        assert (request.name, request.is_plan, post.letters) == ("update_plan", True, [])
        await engine.service.decide(request.approval_id, Answer("approve", mode="accept_edits", by="ada"))
        assert (await engine.wait(run_id)).text == "done"
        assert post.letters == ["late"]
        [changed] = [event.data for event in await journal(engine, run_id) if isinstance(event.data, ModeChanged)]
        assert (changed.mode, changed.by) == ("accept_edits", "ada")
        session = await engine.service.session(SessionId(await session_of(engine, run_id)))
        assert session.mode == "accept_edits"
        assert await replays(engine, run_id)
        told = [message.text for message in model.requests[2].conversation.messages]
        assert "Plan mode is on" in told[0]
        assert "Plan mode is off" in told[-1]


async def test_child_runs_begin_in_the_mode_and_follow_it(tmp_path: Path) -> None:
    post = Post()

    def policy(request: ModelRequest) -> ScriptStep:
        if first_said(request).startswith("go"):
            return say("done") if results(request) else ask(call("agent_spawn", message="post"))
        return say("posted") if results(request) > 1 else letter(f"letter {results(request)}")

    async with opened(tmp_path, FunctionModel(policy)) as engine:
        rules = {"approvals": {"default": "ask", "rules": [{"tool": "agent_spawn", "do": "auto"}]}}
        run_id = await engine.submit(agent(tools=["agent_spawn", post.tool], **rules), "go", mode="ask", **TERMINAL)
        await until(engine, run_id, "agent_waiting")
        [request] = await engine.service.approvals()
        await change(engine, await session_of(engine, run_id), "plan")
        await until(engine, run_id, "agent_told")
        await engine.service.decide(request.approval_id, Answer("approve"))
        assert (await engine.wait(run_id)).text == "done"
        told = [event.data for event in await journal(engine, run_id) if isinstance(event.data, AgentTold)]
        assert [(each.what, each.mode) for each in told] == [("mode", "plan")]
        child = await journal(engine, request.origin.run_id)
        assert isinstance(child[0].data, RunQueued)
        assert (child[0].data.mode, post.letters) == ("ask", ["letter 0"])
        assert types(child).count("tool_call_error") == 1, "the second letter came in plan mode"
        assert await replays(engine, run_id)
        assert await replays(engine, request.origin.run_id)
