"""Agents among the tools of an agent."""

from pathlib import Path

import treadle
from tests.api.programs import make_engine
from treadle.testing import ask, call, say


@treadle.tool(effect="read")
def rhyme(word: str) -> str:
    """Return a rhyme."""
    return f"{word} rhymes with loom"


WRITER = treadle.Agent("writer", model="scripted/any", tools=[rhyme])
EDITOR = treadle.Agent("editor", model="scripted/any", tools=[WRITER])


async def list_results(engine: treadle.Engine, agent: str) -> list[str]:
    """Return the results of the tool calls of an agent's runs."""
    runs = await engine.list_runs(agent=agent)
    items = [item for run in runs for item in await engine.transcript(run.run_id)]
    return [item.result for item in items if isinstance(item, treadle.CallItem)]


async def test_agents_among_the_tools_keep_tools_that_their_caller_lacks(tmp_path: Path) -> None:
    boss = treadle.Agent("boss", model="scripted/any", tools=[EDITOR])
    script = (
        ask(call("invoke_agent", agent="editor", message="A poem.")),
        ask(call("invoke_agent", agent="writer", message="Four lines.")),
        ask(call("rhyme", word="room")),
        say("Room, loom."),
        say("Edited."),
        say("Here it is."),
    )
    async with make_engine(tmp_path, *script) as engine:
        assert (await engine.run(boss, "A poem.")).text == "Here it is."
        assert await list_results(engine, "writer") == ["room rhymes with loom"]
        request = (await engine.show((await engine.list_runs(agent="boss"))[0].run_id)).agent
        assert request == "boss"


async def test_other_agents_and_copies_get_no_tool_that_their_caller_lacks(tmp_path: Path) -> None:
    boss = treadle.Agent("boss", model="scripted/any", tools=["invoke_agent"])
    copier = treadle.Agent("copier", model="scripted/any", tools=["agent_spawn", WRITER])
    script = (
        ask(call("invoke_agent", agent="writer", message="A poem.")),
        ask(call("rhyme", word="room")),
        say("I cannot rhyme."),
        say("No poem."),
        ask(call("agent_spawn", message="Have a poem written.")),
        ask(call("invoke_agent", agent="writer", message="A poem.")),
        ask(call("rhyme", word="room")),
        say("I cannot rhyme."),
        say("The writer cannot rhyme."),
        say("No poem either."),
    )
    async with make_engine(tmp_path, *script) as engine:
        engine.add_agents(WRITER)
        assert (await engine.run(boss, "A poem.")).text == "No poem."
        assert (await engine.run(copier, "A poem.")).text == "No poem either."
        results = await list_results(engine, "writer")
        assert len(results) == 2
        assert all("rhyme" in result and "rhymes with loom" not in result for result in results)


async def test_a_run_may_bring_an_agent_among_its_tools(tmp_path: Path) -> None:
    helper = treadle.Agent("helper", model="scripted/any")
    script = (
        ask(call("invoke_agent", agent="writer", message="A poem.")),
        ask(call("rhyme", word="room")),
        say("Room, loom."),
        say("Here it is."),
    )
    async with make_engine(tmp_path, *script) as engine:
        await engine.run(helper, "A poem.", tools=[WRITER])
        assert await list_results(engine, "writer") == ["room rhymes with loom"]
