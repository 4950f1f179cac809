"""Grants and memories stay in the workspace where they were given, whatever the session does."""

import asyncio
from pathlib import Path
from typing import Any

import treadle
from tests.engine.running import agent, journal, opened, types, until
from tests.engine.test_approvals import ASKS, TERMINAL, Post, letter, wait_for_approval
from treadle.domain.events import MemoryRecalled, RunQueued
from treadle.testing.models import ScriptedModel, ask, call, say

REMEMBERS: dict[str, Any] = {"memory": {"embedder": "none"}}


@treadle.tool(needs=("workspace",))
async def look(context: treadle.ToolContext) -> str:
    """Look around."""
    return str(context.workspace)


def make_folders(tmp_path: Path) -> tuple[Path, Path]:
    folders = tmp_path / "a", tmp_path / "b"
    for folder in folders:
        folder.mkdir()
    return folders


def test_a_grant_holds_until_the_session_continues_in_another_workspace(tmp_path: Path) -> None:
    one, other = make_folders(tmp_path)
    post, hello = Post(), letter("hello")
    model = ScriptedModel(hello, say("1"), hello, say("2"), hello, say("3"), hello, say("4"))

    async def scenario() -> None:
        async with opened(tmp_path, model) as engine:
            poster = agent(tools=[post.tool], **ASKS)
            first = await engine.submit(poster, "go", workspace=one, **TERMINAL)
            request = await wait_for_approval(engine, first)
            await engine.decide(request.approval_id, "approve", remember="session")
            session = (await engine.wait(first)).session_id
            again = await engine.run(poster, "go", session=session, workspace=one, **TERMINAL)
            assert (again.text, post.letters) == ("2", ["hello"] * 2), "in the same workspace it is not asked again"
            there = await engine.submit(poster, "go", session=session, workspace=other, **TERMINAL)
            request = await wait_for_approval(engine, there)
            assert post.letters == ["hello"] * 2
            await engine.decide(request.approval_id, "deny")
            await engine.wait(there)
            back = await engine.submit(poster, "go", session=session, workspace=one, **TERMINAL)
            await wait_for_approval(engine, back)
            assert post.letters == ["hello"] * 2, "a session that was elsewhere has no grants when it comes back"

    asyncio.run(scenario())


def test_a_permanent_rule_of_one_workspace_does_not_apply_in_another(tmp_path: Path) -> None:
    one, other = make_folders(tmp_path)
    post, hello = Post(), letter("hello")
    model = ScriptedModel(hello, say("1"), hello)

    async def scenario() -> None:
        async with opened(tmp_path, model) as engine:
            rule = {"tool": "post", "do": "auto", "workspace": str(one)}
            poster = agent(tools=[post.tool], approvals={"default": "ask", "rules": [rule]})
            assert (await engine.run(poster, "go", workspace=one, **TERMINAL)).text == "1"
            there = await engine.submit(poster, "go", workspace=other, **TERMINAL)
            await wait_for_approval(engine, there)
            assert post.letters == ["hello"]

    asyncio.run(scenario())


def test_a_session_continues_in_its_own_folder_if_the_agent_has_none(tmp_path: Path) -> None:
    one, _ = make_folders(tmp_path)
    model = ScriptedModel(say("1"), ask(call("look", "c1")), say("2"), say("3"))

    async def scenario() -> None:
        async with opened(tmp_path, model) as engine:
            first = await engine.run(agent(tools=[look]), "go", workspace=one)
            later = await engine.run(agent(tools=[look]), "go on", session=first.session_id)
            queued = (await journal(engine, later.run_id))[0].data
            assert isinstance(queued, RunQueued)
            assert queued.workspace is not None
            assert (queued.workspace.folder, queued.agent.workspace) == (str(one), str(one))
            assert str(one) in str(model.requests[-1].conversation.messages[-1].parts)
            other = await engine.run(agent(tools=[look]), "something else")
            started = (await journal(engine, other.run_id))[0].data
            assert isinstance(started, RunQueued)
            assert started.agent.workspace is None, "a new session does not inherit the folder of another"

    asyncio.run(scenario())


def test_a_child_works_in_the_workspace_of_its_parent(tmp_path: Path) -> None:
    one, _ = make_folders(tmp_path)
    model = ScriptedModel(ask(call("agent_spawn", "c1", message="look")), say("child"), say("parent"))

    async def scenario() -> None:
        async with opened(tmp_path, model) as engine:
            result = await engine.run(agent(tools=["agent_spawn"]), "go", workspace=one)
            [child] = [each for each in await engine.service.runs() if each.origin.parent_run_id is not None]
            for run_id in (result.run_id, child.origin.run_id):
                queued = (await journal(engine, run_id))[0].data
                assert isinstance(queued, RunQueued)
                assert queued.workspace is not None
                assert queued.workspace.id == str(one)

    asyncio.run(scenario())


def recalled(events: Any) -> list[str]:
    return [each.data.section for each in events if isinstance(each.data, MemoryRecalled)]


def test_memories_of_one_workspace_are_not_recalled_in_another(tmp_path: Path) -> None:
    one, other = make_folders(tmp_path)
    model = ScriptedModel(*[say("Noted.")] * 5)

    async def scenario() -> None:
        async with opened(tmp_path, model) as engine:
            worker = agent(tools=[look], **REMEMBERS)
            named: dict[str, Any] = {"user": "ada"}
            await engine.run(worker, "The build uses zebra flags.", workspace=one, **named)
            elsewhere = await engine.run(worker, "Which zebra flags?", workspace=other, **named)
            assert recalled(await journal(engine, elsewhere.run_id)) == []
            assert "The build uses" not in str(model.requests[-1].conversation.messages)
            here = await engine.run(worker, "Which zebra flags?", workspace=one, **named)
            [section] = recalled(await journal(engine, here.run_id))
            assert "The build uses zebra flags" in section
            wide = agent(tools=[look], memory={"embedder": "none", "scope": "agent"})
            [section] = recalled(
                await journal(
                    engine, (await engine.run(wide, "Which zebra flags?", workspace=other, **named)).run_id
                )
            )
            assert "The build uses zebra flags" in section
            talker = agent(**REMEMBERS)
            [section] = recalled(
                await journal(
                    engine, (await engine.run(talker, "Which zebra flags?", workspace=other, **named)).run_id
                )
            )
            assert "The build uses zebra flags" in section, "an agent without such tools recalls everywhere"

    asyncio.run(scenario())


def test_memory_is_off_in_a_program_that_does_not_name_the_user(tmp_path: Path) -> None:
    model = ScriptedModel(say("Noted."), say("Noted."), ask(call("memory_search", "c1", query="dog")), say("No."))

    async def scenario() -> None:
        async with opened(tmp_path, model) as engine:
            for memory in (dict[str, Any](), REMEMBERS):
                await engine.run(agent(**memory), "My dog is called Zanzibar.")
            result = await engine.run(agent(tools=["memory_search"], **REMEMBERS), "What is my dog called?")
            assert "memory_recalled" not in types(await journal(engine, result.run_id))
            assert "Zanzibar" not in str(model.requests[-1].conversation.messages)
            assert "memory is off" in str(model.requests[-1].conversation.messages[-1].parts)
            assert await engine.context.memory.list() == []

    asyncio.run(scenario())


def test_users_of_a_program_recall_only_their_own_words(tmp_path: Path) -> None:
    model = ScriptedModel(*[say("Yes.")] * 4)

    async def scenario() -> None:
        async with opened(tmp_path, model) as engine:
            keen = agent(**REMEMBERS)
            await engine.run(keen, "My dog is called Zanzibar.", user="ada")
            for user, expected in (("bob", False), (None, False), ("ada", True)):
                named: dict[str, Any] = {} if user is None else {"user": user}
                await engine.run(keen, "What is my dog called?", **named)
                assert ("Zanzibar" in str(model.requests[-1].conversation.messages)) is expected

    asyncio.run(scenario())


def test_a_plain_library_agent_remembers_nothing_even_for_a_named_user(tmp_path: Path) -> None:
    model = ScriptedModel(say("Yes."))

    async def scenario() -> None:
        async with opened(tmp_path, model) as engine:
            run_id = await engine.submit(agent(), "My dog is called Zanzibar.", user="ada")
            await until(engine, run_id, "run_end")
            assert await engine.context.memory.list() == []

    asyncio.run(scenario())
