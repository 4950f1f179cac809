"""The library as a program uses it."""

import json
from pathlib import Path

import pytest
from pydantic import BaseModel

import treadle
from treadle.api.agent import AgentOptions
from treadle.api.engine import HostedEngine, create_engine
from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import ConfigError
from treadle.testing.models import ScriptedModel, Silence, ask, call, say

AGENT = treadle.Agent(name="helper", model="scripted/x", memory={"recall": 0, "remember": False})


def make_engine(folder: Path, *replies: str) -> HostedEngine:
    engine = create_engine(f"sqlite:///{folder}/t.db", home=Home(folder / "home"))
    engine.add_model("scripted", ScriptedModel(*map(say, replies)))
    return engine


async def test_an_unknown_option_raises_with_a_suggestion(tmp_path: Path) -> None:
    async with make_engine(tmp_path) as engine:
        with pytest.raises(TypeError, match="`sesion` is not an option of a run"):
            await engine.run(AGENT, "Hello.", sesion="x")  # pyright: ignore[reportCallIssue] -- the mistake
        with pytest.raises(TypeError, match="is not an option"):
            await engine.fork("run_1", stepp=1)  # pyright: ignore[reportCallIssue] -- the mistake
        assert await engine.service.runs() == []


def test_dir_shows_the_public_names() -> None:
    assert {"Agent", "Engine", "Block", "Rewrite", "HookedCall", "tool"} < set(dir(treadle))
    assert "import_module" not in dir(treadle)
    assert all(getattr(treadle, name) is not None for name in dir(treadle))


async def test_run_sync_works_while_an_event_loop_runs(tmp_path: Path) -> None:
    async def cell_of_a_notebook() -> str:
        return make_engine(tmp_path, "From a thread.").run_sync(AGENT, "Hello.").text

    assert await cell_of_a_notebook() == "From a thread."
    assert make_engine(tmp_path, "From a script.").run_sync(AGENT, "Hello.").text == "From a script."


async def test_events_serialise_as_clients_receive_them(tmp_path: Path) -> None:
    async with make_engine(tmp_path, "Yes.") as engine:
        *_, end = [event async for event in engine.stream(AGENT, "Hello.")]
    assert json.loads(end.to_json()) == end.to_dict()
    assert (end.to_dict()["type"], end.to_dict()["data"]["text"]) == ("run_end", "Yes.")


class City(BaseModel):
    name: str
    people: int


async def test_a_pydantic_model_is_an_output_type(tmp_path: Path) -> None:
    agent = treadle.Agent(name="cities", model="scripted/x", output=City, memory={"recall": 0, "remember": False})
    assert agent.spec.output is not None
    assert set(agent.spec.output["properties"]) == {"name", "people"}

    async with make_engine(tmp_path, '{"name": "Rome", "people": 3}', '{"name": "Rome"}') as engine:
        assert (await engine.run(agent, "Which city?")).output == City(name="Rome", people=3)
        run_id = await engine.submit(AGENT, "Which city?")
        result = await engine.wait(run_id, City)
        assert (result.outcome, result.output, result.text) == ("failed", None, '{"name": "Rome"}')
        assert "cannot be read as" in result.reason


def test_an_object_that_is_not_a_hook_is_refused() -> None:
    with pytest.raises(TypeError, match="'guard' is not a hook"):
        treadle.Engine("sqlite:///:memory:").add_hooks("guard")  # pyright: ignore[reportArgumentType]


async def test_a_run_can_follow_a_waiting_one_and_continue_an_ended_one(tmp_path: Path) -> None:
    asking = treadle.Agent(
        name="asking", model="scripted/x", tools=["clarify"], memory={"recall": 0, "remember": False}
    )

    engine = create_engine(f"sqlite:///{tmp_path}/t.db", home=Home(tmp_path / "home"))
    model = ScriptedModel(ask(call("clarify", "c1", question="Why?")), say("One."), say("Two."), say("Three."))
    engine.add_model("scripted", model)
    async with engine:
        first = await engine.submit(asking, "1", session="ses_1", asker="channel")
        async for event in engine.events(first):
            if event.type == "run_waiting":
                break
        second = await engine.submit(asking, "2", session="ses_1", after_current=True)
        assert second != first
        await engine.answer(first, "c1", "So.")
        assert [(await engine.wait(run)).text for run in (first, second)] == ["One.", "Two."]
        third = await engine.run(asking, "3", resumed_from=first)
        assert (third.session_id, third.text) == ("ses_1", "Three.")
    said = [message.text for message in model.requests[-1].conversation.messages if message.text]
    assert said[-3:] == ["2", "Two.", "3"]


def test_an_agent_accepts_the_fields_of_its_file() -> None:
    assert AgentOptions.__annotations__.keys() - {"instructions"} | {"name", "output"} == set(
        AgentSpec.__struct_fields__
    )
    agent = treadle.Agent(
        name="a", model="m", hooks=[{"command": "true"}], mcp_servers={"time": {"command": "mcp-server-time"}}
    )
    assert agent.spec.hooks[0].command == "true"
    assert agent.spec.mcp_servers["time"].command == "mcp-server-time"
    beating = treadle.Agent(name="a", model="m", heartbeat={"every": "15m", "message": "Anything new?"})
    assert (beating.spec.heartbeat.every, beating.spec.heartbeat.message) == ("15m", "Anything new?")
    with pytest.raises(ConfigError, match="message must say"):
        treadle.Agent(name="a", model="m", heartbeat={"every": "15m"})


async def test_a_program_announces_the_run_that_an_earlier_one_left_behind(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def make_program(model: ScriptedModel) -> treadle.Engine:
        engine = treadle.Engine(f"sqlite:///{tmp_path}/t.db", home=tmp_path / "home")
        engine.add_model("scripted", model)
        return engine

    async def leave() -> str:
        async with make_program(ScriptedModel(Silence())) as engine:
            run_id = await engine.submit(AGENT, "Hello.")
            async for event in engine.events(run_id):
                if event.type == "llm_request":
                    break
            return run_id

    async def resume(run_id: str) -> None:
        async with make_program(ScriptedModel(say("Done."), say("Yes."))) as engine:
            assert (await engine.wait(run_id)).text == "Done."
            assert (await engine.run(AGENT, "And?")).text == "Yes."

    left = await leave()
    assert caplog.messages == []
    await resume(left)
    assert caplog.messages == [f"Resuming an unfinished run of an earlier process: {left}"]
