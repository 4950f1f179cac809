"""The system prompt and the notes after the conversation: in a fixed order, kept for the session, rebuilt
exactly."""

from itertools import pairwise
from pathlib import Path
from typing import Any, get_args

import msgspec
import pytest

import treadle
from tests import anthropic_wire, responses_wire
from tests.engine.running import agent, journal, opened
from tests.fake_endpoint import Answer, FakeEndpoint, calls, fragment, says
from tests.skills.written import approve, of_home, of_workspace, skill
from treadle.api.engine import create_engine
from treadle.bootstrap.engine import encode_request
from treadle.config.home import Home
from treadle.domain.agents import Limits
from treadle.domain.events import LlmRequest, RunStart, UserMessage
from treadle.domain.providers import ApiMode
from treadle.ports.model import ModelRequest
from treadle.testing.models import ScriptedModel, ask, call, say


@treadle.tool(effect="read", repeatable=True)
async def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing in {place}"


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    folder.mkdir()
    (folder / "config.yaml").write_text("house_rules: Be kind to everybody.\n")
    return folder


async def test_the_prompt_has_persona_rules_skills_notes_and_answer_format_in_order(
    tmp_path: Path, home: Path, workspace: Path
) -> None:
    skill(of_home(home), "pdf", "allowed-tools: look bash nonsense\n")
    skill(of_workspace(workspace), "local", "allowed-tools: write_file\n")
    skill(of_home(home), "unread")
    approve(home, "pdf")
    approve(home, "local", workspace)
    (workspace / "AGENTS.md").write_text("Run the tests with make.\n")
    model = ScriptedModel(ask(call("load_skill", name="pdf")), say("done"))

    async with opened(tmp_path, model, home=home) as engine:
        engine.add_tools(look)
        hero = agent(
            persona="You are careful.", workspace=workspace, skills=["*"], tools=["read_file"],
            loop={"final_marker": "<end>"},
        )  # fmt: skip
        await engine.run(hero, "hello")
    system = model.requests[0].preamble.system
    places = [
        system.index(text)
        for text in ("You are careful.", "Be kind", "local", "pdf", "Run the tests with make.", "<end>")
    ]
    assert places == sorted(places)
    assert "unread" not in system
    names = {tool.name for tool in model.requests[0].preamble.tools}
    assert names == {"read_file", "load_skill", "look", "bash"}, "a workspace skill brings no tools"
    [loaded] = model.requests[1].conversation.messages[-1].parts
    assert "Do this, then that." in str(loaded)


async def test_notes_last_until_a_new_segment_of_the_session(tmp_path: Path, home: Path, workspace: Path) -> None:
    notes = workspace / "AGENTS.md"
    notes.write_text("the first notes")
    model = ScriptedModel(*(say("so") for _ in range(4)))

    async with opened(tmp_path, model, home=home) as engine:
        hero = agent(workspace=workspace)
        first = await engine.run(hero, "one")
        notes.write_text("the second notes")
        await engine.run(hero, "two", session=first.session_id)
        await engine.run(hero, "a session of its own")
        await engine.run(hero, "/reset", session=first.session_id)
        await engine.run(hero, "three", session=first.session_id)
    seen = [request.preamble.system for request in model.requests]
    assert ["the first notes" in each for each in seen] == [True, True, False, False]
    assert ["the second notes" in each for each in seen] == [False, False, True, True]
    assert seen[0] == seen[1], "the prompt stays cached"


async def test_a_changed_skill_is_unavailable_until_approved_again(
    tmp_path: Path, home: Path, workspace: Path
) -> None:
    path = skill(of_home(home), "pdf") / "SKILL.md"
    approve(home, "pdf")
    model = ScriptedModel(*(say("so") for _ in range(3)))

    async with opened(tmp_path, model, home=home) as engine:
        hero = agent(workspace=workspace, skills=["pdf"])
        first = await engine.run(hero, "one")
        path.write_text(path.read_text() + "and more\n")
        await engine.run(hero, "two", session=first.session_id)
        approve(home, "pdf")
        await engine.run(hero, "three", session=first.session_id)
    offered = [bool(request.preamble.tools) for request in model.requests]
    assert offered == [True, False, True]


def messages_of(request: ModelRequest, mode: ApiMode) -> list[Any]:
    body = msgspec.json.decode(encode_request(mode, request))
    return body["input" if mode == "responses" else "messages"]


MODES: tuple[ApiMode, ...] = get_args(ApiMode)


async def test_time_and_place_open_the_message_and_the_prefix_only_grows(tmp_path: Path) -> None:
    replies = [ask(call("look", f"c{n}", place=str(n))) for n in range(3)]
    model = ScriptedModel(*replies, say("done"), say("again"))
    sent: list[dict[ApiMode, list[Any]]] = []

    async with opened(tmp_path, model) as engine:
        hero = agent(tools=[look], budget_hints=True, limits=Limits(max_steps=4))
        first = await engine.run(hero, "go", asker="terminal")
        last = await engine.run(hero, "and?", session=first.session_id, asker="command")
        for run_id, step in [*((first.run_id, step) for step in (1, 2, 3, 4)), (last.run_id, 1)]:
            request = (await engine.service.prompt(run_id, step)).request
            sent.append({mode: messages_of(request, mode) for mode in MODES})
        events = [*await journal(engine, first.run_id), *await journal(engine, last.run_id)]
    requests = [event.data for event in events if isinstance(event.data, LlmRequest)]
    assert requests[0].preface.endswith(" UTC; the user is at a terminal]")
    assert [bool(request.preface) for request in requests] == [True, False, False, False, True]
    assert requests[4].preface.endswith(" UTC]"), "no terminal is named where there is none"
    typed = [event.data.message for event in events if isinstance(event.data, UserMessage)]
    assert [(message.text, message.preface) for message in typed] == [("go", ""), ("and?", "")]
    for mode in MODES:
        bodies = [each[mode] for each in sent]
        assert f"{requests[0].preface}\\ngo" in str(bodies[0][-1])
        assert len([message for message in bodies[0] if message["role"] == "user"]) == 1
        assert "3 of 4 steps" in str(bodies[3])
        for before, after in pairwise(bodies):
            assert after[: len(before)] == before, "each request begins with the one before it"


async def test_a_steered_message_has_its_own_time_and_forks_keep_it(tmp_path: Path) -> None:
    model = ScriptedModel(ask(call("look", "c1", place="hall")), say("one"), say("two"))

    async with opened(tmp_path, model) as engine:

        @treadle.tool(effect="read", name="look")
        async def looks(place: str, context: treadle.ToolContext) -> str:
            """Look somewhere."""
            await engine.steer(context.run_id, "and the cellar?")
            return f"nothing in {place}"

        hero = agent(tools=[looks])
        result = await engine.run(hero, "go", asker="terminal")
        assert result.outcome == "completed"
        forked = await engine.fork(result.run_id, step=2)
        await engine.wait(forked)
        events = await journal(engine, result.run_id)
        record = await engine.service.prompt(forked, 1)
    prefaces = [event.data.preface for event in events if isinstance(event.data, LlmRequest)]
    said = [(m.preface, m.text) for m in record.request.conversation.messages if m.role == "user"]
    assert all(prefaces)
    assert said == [(prefaces[0], "go"), (prefaces[1], "and the cellar?")]
    last = [m for m in model.requests[-1].conversation.messages if m.role == "user"]
    assert [(m.preface, m.text) for m in last] == said


async def test_an_agent_with_workspace_tools_learns_its_folder_and_others_do_not(
    tmp_path: Path, home: Path, workspace: Path
) -> None:
    model = ScriptedModel(*(say("so") for _ in range(4)))

    async with opened(tmp_path, model, home=home) as engine:
        first = await engine.run(agent(workspace=workspace, tools=["read_file"]), "one")
        await engine.run(agent(workspace=workspace, tools=["read_file"]), "two", session=first.session_id)
        await engine.run(agent(workspace=workspace, tools=[look]), "three")
        await engine.run(agent(workspace=workspace), "four")
    told = [request.preamble.system for request in model.requests]
    assert [f"Your working folder is {workspace}." in each for each in told] == [True, True, False, False]
    assert ["Never make up what a tool returns" in each for each in told] == [True, True, True, False]
    assert told[0] == told[1]


def replies(mode: ApiMode) -> tuple[Answer, Answer]:
    match mode:
        case "anthropic_messages":
            asks = anthropic_wire.asks(0, "toolu_1", "look", '{"place": "hall"}')
            return Answer(anthropic_wire.stream(asks, stop="tool_use")), anthropic_wire.says("Nothing.")
        case "chat_completions":
            return calls(fragment(0, "c1", "look", '{"place": "hall"}')), says("Nothing.")
        case "responses":
            item = responses_wire.call("call_1", "look", '{"place": "hall"}')
            said = responses_wire.message("Nothing.")
            return (
                Answer(responses_wire.wire(*responses_wire.replied(item))),
                Answer(responses_wire.wire(*responses_wire.replied(said))),
            )


@pytest.mark.parametrize("mode", ["anthropic_messages", "chat_completions", "responses"])
async def test_the_request_is_rebuilt_byte_for_byte(
    tmp_path: Path, home: Path, workspace: Path, mode: ApiMode
) -> None:
    (workspace / "AGENTS.md").write_text("Run the tests with make.\n")

    async with FakeEndpoint(*replies(mode)) as server:
        engine = create_engine(f"sqlite:///{tmp_path}/t.db", home=Home(home))
        engine.add_provider("fake", base_url=server.url, api_mode=mode, api_key="x")
        async with engine:
            hero: Any = treadle.Agent(
                name="hero", model="fake/m", persona="You look.", tools=[look], workspace=workspace,
                model_settings={"max_tokens": 1000},
            )  # fmt: skip
            result = await engine.run(hero, "Look around.", asker="terminal")
            assert result.outcome == "completed"
            for step, request in enumerate(server.requests, start=1):
                seen = await engine.service.prompt(result.run_id, step)
                assert encode_request(seen.model.api_mode, seen.request) == request.body
            events = await journal(engine, result.run_id)
    [start] = [event.data for event in events if isinstance(event.data, RunStart)]
    assert "Run the tests with make." in start.notes


async def test_the_overview_of_the_folder_is_read_once_for_a_session(tmp_path: Path, workspace: Path) -> None:
    (workspace / "first.py").touch()
    model = ScriptedModel(say("one"), say("two"), say("three"))

    async with opened(tmp_path, model) as engine:
        hero = agent(tools=["read_file"], workspace=str(workspace))
        one = await engine.run(hero, "go")
        (workspace / "second.py").touch()
        await engine.run(hero, "go on", session=one.session_id)
        await engine.run(agent(tools=[look], workspace=str(workspace)), "go")
    first, second, other = (request.preamble.system for request in model.requests)
    assert "\nfirst.py\n" in first
    assert second == first
    assert "first.py" not in other, "it has no tool that reads files"
