"""The likeliest mistakes of newcomers. Each gives one message that names its cause and its cure."""

import asyncio
import copy
import os
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.api.programs import HELPER, OPERATOR, deploy, make_engine
from treadle.api.attribute_hints import HINTS
from treadle.api.streams import RunStream
from treadle.testing.models import ask, call, say

Mistake = Callable[[Path, treadle.Engine], Awaitable[object]]


def without_annotation(x: int) -> int:
    return x


del without_annotation.__annotations__["x"]  # what the program did not write


def with_stars(*values: int) -> str:
    return str(values)


@treadle.tool(name="deploy")
def also_deploy(version: str) -> str:
    return version


def agent(**options: Any) -> treadle.Agent[Any]:
    fields: dict[str, Any] = {"name": "a", "model": "scripted/any", **options}
    return treadle.Agent(**fields)


async def make(**options: Any) -> treadle.Agent[Any]:
    return agent(**options)


async def declare(function: Callable[..., Any], **options: Any) -> object:
    return treadle.tool(**options)(function) if options else treadle.tool(function)


async def open_database(url: str) -> None:
    async with treadle.Engine(url):
        pass


async def open_in_another_process(folder: Path) -> None:
    """Raise what a second process is told."""
    code = f"import treadle; treadle.Engine('sqlite:///{folder}/program.db').open()"
    command = sys.executable, "-c", code
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.PIPE)
    _, told = await process.communicate()
    raise treadle.TreadleError(told.decode())


async def fork_and_run(engine: treadle.Engine) -> None:
    """Do in this process what a forked one would do."""
    engine._opened_by -= 1  # pyright: ignore[reportPrivateUsage] -- a fork of a process with threads may hang
    await engine.run(HELPER, "Hello.")


async def call_sync(engine: treadle.Engine) -> None:
    engine.run_sync(HELPER, "Hello.")


async def iterate(stream: Any) -> None:
    for _ in stream:
        pass


async def look_up(owner: object, name: str) -> object:
    return getattr(owner, name)


async def look_up_in_result(engine: treadle.Engine, name: str) -> object:
    return getattr(await engine.run(HELPER, "Hello."), name)


UNKNOWN: Any = "x"
NO_TEXT: Any = []
OTHER_NAMES: dict[str, dict[str, Any]] = {
    "timeout": {"timeout": 5},
    "thread_id": {"thread_id": "1"},
    "attachments": {"attachments": ["notes.txt"]},
}
MISTAKES: dict[str, tuple[Mistake, str]] = {
    "system_prompt": (lambda _, __: make(system_prompt="Be kind."), "Write instructions=…"),
    "persona twice": (
        lambda _, __: make(persona="a", instructions="b"),
        "is another name of `persona`",
    ),
    "temperature": (lambda _, __: make(temperature=0.2), 'Write model_settings={"temperature": …}'),
    "max_turns": (lambda _, __: make(max_turns=3), 'Write limits={"max_steps": …}'),
    "api_key": (lambda _, __: make(api_key="k"), "engine.add_provider"),
    "deps": (lambda _, __: make(deps=1), "Write Engine(deps=…)"),
    "output_type": (lambda _, __: make(output_type=int), "Write output=…"),
    "a typo": (lambda _, __: make(toolz=[]), "Did you mean `tools`?"),
    "a typo in limits": (lambda _, __: make(limits={"max_step": 1}), "did you mean `max_steps`?"),
    "the model comes first": (lambda _, __: make(name="openai:gpt-4o"), "Write Agent(model='openai:gpt-4o')"),
    "no list of tools": (lambda _, __: make(tools=deploy), "is not a list. Write tools=[…]"),
    "a tool was called": (lambda _, __: make(tools=[deploy("1.2")]), "without calling it"),
    "two tools, one name": (lambda _, __: make(tools=[deploy, also_deploy]), "Two tools are called `deploy`"),
    "no annotation": (lambda _, __: declare(without_annotation), "parameter `x` has no annotation"),
    "stars": (lambda _, __: declare(with_stars), "give each one a name"),
    "a lambda": (lambda _, __: declare(lambda: ""), "@tool(name=...)"),
    "an unknown effect": (lambda _, __: declare(deploy, effect="writes"), "one of none, read, write, external"),
    "no type": (lambda _, __: make(output="json"), "has no JSON Schema"),
    "a path": (lambda _, __: open_database("app.db"), "Did you mean `sqlite:///app.db`?"),
    "two slashes": (lambda _, __: open_database("sqlite://app.db"), "Did you mean `sqlite:///app.db`?"),
    "no folder": (lambda folder, _: open_database(f"sqlite:///{folder}/none/app.db"), "does not exist. Create it"),
    "two processes": (lambda folder, _: open_in_another_process(folder), "need PostgreSQL, or one"),
    "two engines": (
        lambda folder, _: open_database(f"sqlite:///{folder}/program.db"),
        "is open in this process already",
    ),
    "the name of a file": (
        lambda _, engine: engine.run(HELPER, "Read.", **OTHER_NAMES["attachments"]),
        "Write Path('notes.txt')",
    ),
    "a fork": (lambda _, engine: fork_and_run(engine), "Open an engine after the fork"),
    "not open": (lambda _, __: treadle.Engine("sqlite:///:memory:").run(HELPER, "Hello."), "Use `async with"),
    "opened twice": (lambda _, engine: engine.__aenter__(), "open already"),
    "no provider": (lambda _, engine: engine.run(agent(model="gpt-4o"), "Hello."), "write provider/gpt-4o"),
    "an unknown provider": (lambda _, engine: engine.run(agent(model="opnai/x"), "Hello."), "opnai"),
    "no key": (lambda _, engine: engine.run(agent(model="openai:gpt-4o"), "Hello."), "OPENAI_API_KEY"),
    "no model": (lambda _, engine: engine.run(treadle.Agent(), "Hello."), "Set `model` of the agent"),
    "an unknown tool": (
        lambda _, engine: engine.run(agent(tools=["serch"]), "Hello."),
        "no tool is called",
    ),
    "an unknown agent": (lambda _, engine: engine.run("reviewr", "Hello."), "reviewr"),
    "no workspace": (
        lambda _, engine: engine.run(agent(workspace="/none"), "Hello."),
        "not a folder. Create it",
    ),
    "no text": (lambda _, engine: engine.run(HELPER, NO_TEXT), "The message is text, not list"),
    "an empty message": (lambda _, engine: engine.run(HELPER, " "), "Write what the agent should do"),
    "timeout": (lambda _, engine: engine.run(HELPER, "Hello.", **OTHER_NAMES["timeout"]), "Write deadline=…"),
    "thread_id": (lambda _, engine: engine.run(HELPER, "Hello.", **OTHER_NAMES["thread_id"]), "Write session=…"),
    "an unknown run": (lambda _, engine: engine.wait("run_none"), "There is no run run_none"),
    "an unknown decision": (lambda _, engine: engine.decide("apr_1", UNKNOWN), '"approve" or "deny"'),
    "an odd function": (lambda _, engine: engine.run(OPERATOR, "Go.", on_approval=lambda _: UNKNOWN), '"approve"'),
    "await a stream": (lambda _, engine: engine.stream(HELPER, "Hello."), "read with `async for`"),
    "for on a stream": (lambda _, engine: iterate(engine.stream(HELPER, "Hello.")), "read with `async for`"),
    "a tool's option": (lambda _, __: declare(deploy, requires_approval=True), "Write needs_approval=True"),
    "a typo in a tool": (lambda _, __: declare(deploy, repeatble=True), "Did you mean `repeatable`?"),
    "agent.run": (lambda _, __: look_up(HELPER, "run"), "Call `await engine.run(agent, message)`"),
    "agent.as_tool": (lambda _, __: look_up(HELPER, "as_tool"), "Write tools=[agent]"),
    "@agent.tool": (lambda _, __: look_up(HELPER, "tool"), "with @treadle.tool"),
    "agent.name": (lambda _, __: look_up(HELPER, "name"), "Write agent.spec.name."),
    "engine.approve": (lambda _, engine: look_up(engine, "approve"), 'engine.decide(approval_id, "approve")'),
    "engine.list_run": (lambda _, engine: look_up(engine, "list_run"), "Did you mean `list_runs`?"),
    "engine.run_stream": (lambda _, engine: look_up(engine, "run_stream"), "Call engine.stream_text"),
    "result.data": (lambda _, engine: look_up_in_result(engine, "data"), "Write result.output"),
    "result.outptu": (lambda _, engine: look_up_in_result(engine, "outptu"), "Did you mean `output`?"),
    "stream.text_stream": (
        lambda _, engine: look_up(engine.stream(HELPER, "Hello."), "text_stream"),
        "The stream itself yields",
    ),
    "treadle.Runner": (lambda _, __: look_up(treadle, "Runner"), "Open a treadle.Engine"),
    "treadle.Agnet": (lambda _, __: look_up(treadle, "Agnet"), "Did you mean `Agent`?"),
    "sync in a loop": (lambda _, engine: call_sync(engine), "use `await engine.run"),
}


@pytest.mark.parametrize("name", MISTAKES)
async def test_a_mistake_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    mistake, message = MISTAKES[name]
    async with make_engine(tmp_path, ask(call("deploy", version="1.2")), say("Done.")) as engine:
        with pytest.raises((treadle.TreadleError, TypeError, AttributeError)) as raised:
            await mistake(tmp_path, engine)
    assert message in str(raised.value)


async def test_names_of_models_may_be_written_as_in_other_libraries(tmp_path: Path) -> None:
    async with make_engine(tmp_path, say("Hello.")) as engine:
        assert (await engine.run(agent(model="scripted:any:8b"), "Hello.")).text == "Hello."


async def test_an_agent_may_be_given_by_its_name(tmp_path: Path) -> None:
    async with make_engine(tmp_path, say("Hello.")) as engine:
        engine.add_agents(HELPER)
        assert (await engine.run("helper", "Hello.")).text == "Hello."


async def test_a_program_asks_an_agent_in_one_line(tmp_path: Path) -> None:
    code = """if True:
        import treadle
        agent = treadle.Agent(model="ollama/none", instructions="Be brief.")
        print(agent.run_sync("Hello.", limits={"deadline": 1}).status)
    """
    environment = os.environ | {"TREADLE_HOME": str(tmp_path), "OLLAMA_HOST": "127.0.0.1:1"}
    command = sys.executable, "-c", code
    process = await asyncio.create_subprocess_exec(*command, env=environment, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert output.decode().strip() in ("failed", "completed")


def test_names_of_python_are_looked_up_as_in_other_classes() -> None:
    """Agents are copied and pickled, and notebooks ask objects for their own representation."""
    assert not hasattr(HELPER, "_repr_html_")
    assert copy.deepcopy(HELPER).spec == HELPER.spec
    assert not hasattr(treadle, "__wrapped__")


def test_hints_are_about_names_that_are_missing() -> None:
    owners = {"treadle": treadle, "RunStream": RunStream, "Result": treadle.Result}
    owners |= {"Agent": treadle.Agent, "Engine": treadle.Engine}
    assert owners.keys() == HINTS.keys()
    assert [(owner, name) for owner, hints in HINTS.items() for name in hints if name in dir(owners[owner])] == []
