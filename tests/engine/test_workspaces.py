"""Grants and memories stay in the workspace where they were given, whatever the session does."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

import treadle
from tests.engine.running import agent, journal, opened, types, until
from tests.engine.test_approvals import ASKS, TERMINAL, Post, letter, wait_for_approval
from treadle.api.agent import apply_options
from treadle.core.context.compaction import INSTRUCTIONS
from treadle.domain.agents import AgentSpec, MemorySettings
from treadle.domain.errors import InvalidState
from treadle.domain.events import MemoryRecalled, MemorySaved, RunQueued
from treadle.domain.ids import RunId
from treadle.operations import run_control
from treadle.ports.model import ModelRequest
from treadle.system.workspace_identity import find_workspace
from treadle.testing.models import FunctionModel, ScriptedModel, ask, call, say

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


async def test_a_grant_holds_until_the_session_continues_in_another_workspace(tmp_path: Path) -> None:
    one, other = make_folders(tmp_path)
    post, hello = Post(), letter("hello")
    model = ScriptedModel(hello, say("1"), hello, say("2"), hello, say("3"), hello, say("4"))

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


async def test_a_permanent_rule_of_one_workspace_does_not_apply_in_another(tmp_path: Path) -> None:
    one, other = make_folders(tmp_path)
    post, hello = Post(), letter("hello")
    model = ScriptedModel(hello, say("1"), hello)

    async with opened(tmp_path, model) as engine:
        rule = {"tool": "post", "do": "auto", "workspace": str(one)}
        poster = agent(tools=[post.tool], approvals={"default": "ask", "rules": [rule]})
        assert (await engine.run(poster, "go", workspace=one, **TERMINAL)).text == "1"
        there = await engine.submit(poster, "go", workspace=other, **TERMINAL)
        await wait_for_approval(engine, there)
        assert post.letters == ["hello"]


async def test_a_session_continues_in_its_own_folder_if_the_agent_has_none(tmp_path: Path) -> None:
    one, _ = make_folders(tmp_path)
    model = ScriptedModel(say("1"), ask(call("look", "c1")), say("2"), say("3"))

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


async def test_a_child_works_in_the_workspace_of_its_parent(tmp_path: Path) -> None:
    one, _ = make_folders(tmp_path)
    model = ScriptedModel(ask(call("agent_spawn", "c1", message="look")), say("child"), say("parent"))

    async with opened(tmp_path, model) as engine:
        result = await engine.run(agent(tools=["agent_spawn"]), "go", workspace=one)
        [child] = [each for each in await engine.service.runs() if each.origin.parent_run_id is not None]
        for run_id in (result.run_id, child.origin.run_id):
            queued = (await journal(engine, run_id))[0].data
            assert isinstance(queued, RunQueued)
            assert queued.workspace is not None
            assert queued.workspace.id == str(one)


def recalled(events: Any) -> list[str]:
    return [each.data.section for each in events if isinstance(each.data, MemoryRecalled)]


async def test_memories_of_one_workspace_are_not_recalled_in_another(tmp_path: Path) -> None:
    one, other = make_folders(tmp_path)
    model = ScriptedModel(*[say("Noted.")] * 5)

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
            await journal(engine, (await engine.run(wide, "Which zebra flags?", workspace=other, **named)).run_id)
        )
        assert "The build uses zebra flags" in section
        talker = agent(**REMEMBERS)
        [section] = recalled(
            await journal(engine, (await engine.run(talker, "Which zebra flags?", workspace=other, **named)).run_id)
        )
        assert "The build uses zebra flags" in section, "an agent without such tools recalls everywhere"


async def test_memory_is_off_in_a_program_that_does_not_name_the_user(tmp_path: Path) -> None:
    model = ScriptedModel(say("Noted."), say("Noted."), ask(call("memory_search", "c1", query="dog")), say("No."))

    async with opened(tmp_path, model) as engine:
        for memory in (dict[str, Any](), REMEMBERS):
            await engine.run(agent(**memory), "My dog is called Zanzibar.")
        result = await engine.run(agent(tools=["memory_search"], **REMEMBERS), "What is my dog called?")
        assert "memory_recalled" not in types(await journal(engine, result.run_id))
        assert "Zanzibar" not in str(model.requests[-1].conversation.messages)
        assert "memory is off" in str(model.requests[-1].conversation.messages[-1].parts)
        assert await engine.context.memory.list() == []


async def test_users_of_a_program_recall_only_their_own_words(tmp_path: Path) -> None:
    model = ScriptedModel(*[say("Yes.")] * 4)

    async with opened(tmp_path, model) as engine:
        keen = agent(**REMEMBERS)
        await engine.run(keen, "My dog is called Zanzibar.", user="ada")
        for user, expected in (("bob", False), (None, False), ("ada", True)):
            named: dict[str, Any] = {} if user is None else {"user": user}
            await engine.run(keen, "What is my dog called?", **named)
            assert ("Zanzibar" in str(model.requests[-1].conversation.messages)) is expected


async def test_a_plain_library_agent_remembers_nothing_even_for_a_named_user(tmp_path: Path) -> None:
    model = ScriptedModel(say("Yes."))

    async with opened(tmp_path, model) as engine:
        run_id = await engine.submit(agent(), "My dog is called Zanzibar.", user="ada")
        await until(engine, run_id, "run_end")
        assert await engine.context.memory.list() == []


def make_repository(folder: Path) -> None:
    """Do what `git init` does, as far as the identity of a folder goes."""
    (folder / ".git" / "objects").mkdir(parents=True)
    (folder / ".git" / "HEAD").write_text("ref: refs/heads/main\n")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"place": "b", "user": "ada"}, "it works in .*/a"),
        ({"place": "a"}, "it is for `ada`, and the message names no user"),
        ({"place": "a", "user": "ada"}, None),
    ],
)
@pytest.mark.parametrize("is_initialised", [False, True])
async def test_a_run_that_waits_gets_messages_of_its_own_user_and_folder_alone(
    tmp_path: Path, options: dict[str, str], reason: str | None, is_initialised: bool
) -> None:
    one, _ = make_folders(tmp_path)
    post = Post()
    model = ScriptedModel(letter("hello"), say("1"))

    async with opened(tmp_path, model) as engine:
        poster = agent(tools=[post.tool], **ASKS)
        waiting = await engine.submit(poster, "go", session="ses_a", workspace=one, user="ada", **TERMINAL)
        await wait_for_approval(engine, waiting)
        if is_initialised:
            make_repository(one)
        named: dict[str, Any] = {"user": options["user"]} if "user" in options else {}
        send = engine.submit(poster, "more", session="ses_a", workspace=tmp_path / options["place"], **named)
        if reason is None:
            assert await send == waiting, "also after `git init`"
        else:
            with pytest.raises(InvalidState, match=reason):
                await send
            assert "message_steered" not in types(await stored(engine, waiting))
        await engine.cancel(waiting)


async def stored(engine: Any, run_id: str) -> list[Any]:
    return [event async for event in engine.context.service.read_stored(run_id)]


@pytest.mark.parametrize("place", ["a", "b"])
async def test_a_message_reaches_a_run_in_progress_only_from_its_own_folder(tmp_path: Path, place: str) -> None:
    one, _ = make_folders(tmp_path)
    post = Post()

    async with opened(tmp_path, ScriptedModel(letter("hello"), say("1"))) as engine:
        poster = agent(tools=[post.tool], **ASKS)
        run_id = await engine.submit(poster, "go", workspace=one, **TERMINAL)
        await wait_for_approval(engine, run_id)
        make_repository(one)
        steer = run_control.SteerRun(RunId(run_id), "more", workspace=find_workspace(tmp_path / place))
        if place == "a":
            await run_control.steer_run(engine.context, steer)
        else:
            with pytest.raises(InvalidState, match=r"works in .*/a, not in .*/b"):
                await run_control.steer_run(engine.context, steer)
        assert ("message_steered" in types(await stored(engine, run_id))) is (place == "a")
        await engine.cancel(run_id)


async def test_fewer_tools_do_not_widen_what_is_recalled(tmp_path: Path) -> None:
    one, other = make_folders(tmp_path)
    spawn = ask(call("agent_spawn", "c1", message="Which zebra flags?", tools=[]))
    model = ScriptedModel(say("Noted."), spawn, say("child"), say("parent"), say("narrow"))

    async with opened(tmp_path, model) as engine:
        worker = agent(tools=[look, "agent_spawn"], **REMEMBERS)
        named: dict[str, Any] = {"user": "ada"}
        await engine.run(worker, "The build uses zebra flags.", workspace=one, **named)
        await engine.run(worker, "Ask a helper.", workspace=other, **named)
        [child] = [each for each in await engine.service.runs() if each.origin.parent_run_id is not None]
        assert recalled(await journal(engine, child.origin.run_id)) == []
        narrow = await engine.run(worker, "Which zebra flags?", workspace=other, tools=[], **named)
        assert recalled(await journal(engine, narrow.run_id)) == []


@pytest.mark.parametrize("changed", [("look",), (), ("look", "agent_spawn")])
def test_a_run_with_other_tools_recalls_by_workspace_unless_the_agent_says_otherwise(
    changed: tuple[str, ...],
) -> None:
    spec = AgentSpec("hero", tools=("look", "agent_spawn"))
    is_same = changed == spec.tools
    assert apply_options(spec, {"tools": changed}).memory.scope == (None if is_same else "workspace")
    wide = msgspec.structs.replace(spec, memory=MemorySettings(scope="agent"))
    assert apply_options(wide, {"tools": changed}).memory.scope == "agent"


@pytest.mark.parametrize("first", [None, "local"])
@pytest.mark.parametrize("is_forked", [False, True])
async def test_a_compaction_saves_nothing_of_an_unnamed_user(
    tmp_path: Path, first: str | None, is_forked: bool
) -> None:
    summary = "## Done\nThey spoke.\n\n## Remember\n- The dog is called Zanzibar.\n"
    asked: list[str] = []

    def answer(request: ModelRequest) -> Any:
        if request.preamble.system.startswith(INSTRUCTIONS[:40]):
            asked.append(request.preamble.system)
            return say(summary)
        return say("words " * 300)

    async with opened(tmp_path, FunctionModel(answer)) as engine:
        keen = agent(**REMEMBERS)
        named: dict[str, Any] = {} if first is None else {"user": first}
        session = (await engine.run(keen, "My dog is called Zanzibar.", **named)).session_id
        runs = [await engine.run(keen, f"message {number}", session=session, user="local") for number in range(4)]
        if is_forked:
            forked = await engine.fork(runs[-1].run_id, step=1, message="And again.", **TERMINAL)
            session = (await engine.wait(forked)).session_id
        done = await engine.run(keen, "/compact", session=session, user="local")
        assert "shorter" in done.text
        events = [each.data for each in await journal(engine, done.run_id)]
        saved = [each.source for each in events if isinstance(each, MemorySaved)]
        assert saved == ([] if first is None else ["compaction"])
        assert [len(each) > len(INSTRUCTIONS) for each in asked] == [first is not None]
