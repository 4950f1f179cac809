"""The context of one call: deps of a run, and instructions that a function writes."""

from pathlib import Path
from typing import Any

import msgspec
import pytest

import treadle
from treadle.domain.errors import RunUnavailable, UsageError
from treadle.domain.events import RunQueued
from treadle.ports.model import ModelRequest
from treadle.testing import ScriptedModel, ask, call, say
from treadle.testing.models import FunctionModel, ScriptStep, Silence


class Shop(msgspec.Struct):
    name: str


class Bank:
    pass


@treadle.tool(effect="read", repeatable=True)
def show_shop(context: treadle.ToolContext[Shop]) -> str:
    """Return the name of the shop."""
    return context.deps.name


@treadle.tool(effect="external")
def sell(context: treadle.ToolContext[Shop]) -> str:
    """Sell a loom."""
    return f"sold by {context.deps.name}"


SELLER = treadle.Agent("seller", model="scripted/any", tools=[show_shop], deps_type=Shop)
CLERK = treadle.Agent("clerk", model="scripted/any", tools=[show_shop])
BOSS = treadle.Agent("boss", model="scripted/any", tools=[CLERK])


def open_engine(folder: Path, *script: ScriptStep, **options: Any) -> treadle.Engine:
    engine = treadle.Engine(f"sqlite:///{folder}/program.db", home=folder / "home", **options)
    engine.add_model("scripted", ScriptedModel(*script))
    return engine


async def read_results(engine: treadle.Engine, run_id: str) -> list[str]:
    return [item.result for item in await engine.transcript(run_id) if isinstance(item, treadle.CallItem)]


async def test_each_run_has_deps_of_its_own(tmp_path: Path) -> None:
    look = ask(call("show_shop"))
    async with open_engine(tmp_path, *[look, say("Done.")] * 3, deps=Shop("default")) as engine:
        runs = [await engine.run(SELLER, "Which shop?", deps=Shop(name)) for name in ("Weft", "Warp")]
        runs.append(await engine.run(SELLER, "Which shop?"))
        found = [await read_results(engine, run.run_id) for run in runs]
    assert found == [["Weft"], ["Warp"], ["default"]]


async def test_child_runs_and_hooks_have_the_deps_of_their_run(tmp_path: Path) -> None:
    seen: list[Any] = []

    class Watch(treadle.Hook):
        async def before(self, call: treadle.HookedCall) -> None:
            seen.append((call.agent, call.deps))

    order = ask(call("invoke_agent", agent="clerk", message="Which shop?"))
    async with open_engine(tmp_path, order, ask(call("show_shop")), say("Weft."), say("Weft.")) as engine:
        engine.add_hooks(Watch())
        await engine.run(BOSS, "Ask the clerk.", deps=Shop("Weft"))
        [child] = await engine.list_runs(agent="clerk")
        assert await read_results(engine, child.run_id) == ["Weft"]
    assert seen == [("boss", Shop("Weft")), ("clerk", Shop("Weft"))]


@pytest.mark.parametrize(
    ("deps", "told"),
    [(None, "needs deps of the type Shop, and the run has none"), (Bank(), "type Shop, and the run has Bank")],
)
async def test_deps_that_an_agent_needs_are_checked_at_once(tmp_path: Path, deps: Any, told: str) -> None:
    async with open_engine(tmp_path) as engine:
        with pytest.raises(UsageError, match=told):
            await engine.submit(SELLER, "Which shop?", deps=deps)
        assert await engine.list_runs() == []


async def test_a_run_without_its_deps_waits_for_an_engine_that_makes_them(tmp_path: Path) -> None:
    """Deps are never stored. A process that lacks them executes nothing with other deps."""
    agent = treadle.Agent(
        "seller", model="scripted/any", tools=[sell], deps_type=Shop, approvals={"default": "ask"}
    )
    async with open_engine(tmp_path, ask(call("sell"))) as engine:
        started = await engine.run(agent, "Sell.", deps=Shop("Secret shop"), tags=["vip"], user="ada")
        assert [await_.tool for await_ in started.approvals] == ["sell"]
    async with open_engine(tmp_path, deps=Shop("wrong")) as engine:
        engine.add_agents(agent)
        await engine.decide(started.approvals[0].approval_id, "approve")
        with pytest.raises(RunUnavailable, match="submitted with deps of its own"):
            await engine.wait(started.run_id)
    asked: list[treadle.RunContext[None]] = []

    async def make_deps(context: treadle.RunContext[None]) -> Shop:
        asked.append(context)
        return Shop(f"shop of {context.user}")

    async with open_engine(tmp_path, say("Sold."), make_deps=make_deps) as engine:
        engine.add_agents(agent)
        assert (await engine.wait(started.run_id)).text == "Sold."
        assert await read_results(engine, started.run_id) == ["sold by shop of ada"]
    [context] = asked
    assert (context.run_id, context.session_id, context.agent) == (started.run_id, started.session_id, "seller")
    assert (context.tags, context.deps) == (("vip",), None)
    assert b"Secret shop" not in (tmp_path / "program.db").read_bytes()


async def test_a_run_that_was_cut_off_is_named_with_what_it_lacks(tmp_path: Path) -> None:
    def make_deps(context: treadle.RunContext[None]) -> Shop:
        return Shop("Weft")

    async with open_engine(tmp_path, Silence("Let me think")) as engine:
        run_id = await engine.submit(CLERK, "Which shop?", deps=Shop("Weft"))
        async for event in engine.events(run_id):
            if isinstance(event.data, treadle.Token):
                break
    async with open_engine(tmp_path) as engine:
        engine.add_agents(CLERK)
        with pytest.raises(RunUnavailable, match="submitted with deps of its own"):
            await engine.wait(run_id)
        assert "make_deps" in engine.recovered.blocked[run_id]
    async with open_engine(tmp_path, ask(call("show_shop")), say("Weft."), make_deps=make_deps) as engine:
        engine.add_agents(CLERK)
        assert (await engine.wait(run_id)).text == "Weft."
        assert await read_results(engine, run_id) == ["Weft"]


async def test_the_same_key_brings_the_deps_back(tmp_path: Path) -> None:
    agent = treadle.Agent("seller", model="scripted/any", tools=[sell], approvals={"default": "ask"})
    async with open_engine(tmp_path, ask(call("sell"))) as engine:
        started = await engine.run(agent, "Sell.", deps=Shop("Weft"), key="k")
    async with open_engine(tmp_path, say("Sold.")) as engine:
        assert await engine.submit(agent, "Sell.", deps=Shop("Weft again"), key="k") == started.run_id
        await engine.decide(started.approvals[0].approval_id, "approve")
        await engine.wait(started.run_id)
        assert await read_results(engine, started.run_id) == ["sold by Weft again"]


async def test_a_make_deps_that_fails_is_named(tmp_path: Path) -> None:
    def make_deps(context: treadle.RunContext[None]) -> Shop:
        raise OSError("no such shop")

    async with open_engine(tmp_path, say("Hi."), make_deps=make_deps) as engine:
        with pytest.raises(RunUnavailable, match="make_deps raised OSError: no such shop"):
            await engine.run(SELLER, "Hello.")


# ── Instructions ───────────────────────────────────────────────────────────────────────────────────


async def introduce(context: treadle.RunContext[Shop]) -> str:
    return f"You sell for {context.deps.name} to {context.user} ({context.metadata['ticket']})."


async def read_persona(engine: treadle.Engine, run_id: str) -> str:
    async for event in engine.events(run_id):
        if isinstance(event.data, RunQueued):
            return event.data.agent.persona
    raise AssertionError("a run begins with run_queued")


async def test_a_function_writes_the_instructions_of_a_run_once(tmp_path: Path) -> None:
    """The text is journaled, so that a fork has the same."""
    systems: list[str] = []

    def reply(request: Any) -> ScriptStep:
        systems.append(request.preamble.system)
        return say("Hello.")

    agent = treadle.Agent("seller", model="fake/any", deps_type=Shop, instructions=introduce)
    async with open_engine(tmp_path) as engine:
        engine.add_model("fake", FunctionModel(reply))
        run = await engine.run(agent, "Hello.", deps=Shop("Weft"), user="ada", metadata={"ticket": "42"})
        told = "You sell for Weft to ada (42)."
        assert await read_persona(engine, run.run_id) == told
        fork = await engine.fork(run.run_id)
        await engine.cancel(fork)
        assert await read_persona(engine, fork) == told
    assert told in systems[0]


async def test_child_agents_have_functions_too(tmp_path: Path) -> None:
    child = treadle.Agent("seller", model="scripted/any", instructions=introduce)
    boss = treadle.Agent("boss", model="scripted/any", tools=[child])
    order = ask(call("invoke_agent", agent="seller", message="Sell."))
    async with open_engine(tmp_path, order, say("Sold."), say("Done.")) as engine:
        await engine.run(boss, "Go.", deps=Shop("Warp"), metadata={"ticket": "1"})
        [run] = await engine.list_runs(agent="seller")
        assert await read_persona(engine, run.run_id) == "You sell for Warp to local (1)."


def return_a_number(context: treadle.RunContext) -> int:
    return 1


@pytest.mark.parametrize(
    ("write", "told"),
    [
        (introduce, "`introduce` raised KeyError: 'ticket'. Nothing was started"),
        (return_a_number, "returned int, not text"),
    ],
)
async def test_a_function_that_fails_starts_nothing(tmp_path: Path, write: Any, told: str) -> None:
    agent = treadle.Agent("seller", model="scripted/any", instructions=write)
    async with open_engine(tmp_path) as engine:
        with pytest.raises(UsageError, match=told):
            await engine.run(agent, "Hello.", deps=Shop("Weft"))
        assert await engine.list_runs() == []


async def test_a_fork_with_another_agent_has_its_instructions_and_deps(tmp_path: Path) -> None:
    prompts: list[str] = []
    steps = iter([say("Hello."), ask(call("show_shop")), say("Warp.")])

    def reply(request: ModelRequest) -> ScriptStep:
        prompts.append(request.preamble.system)
        return next(steps)

    def introduce(context: treadle.RunContext[Shop]) -> str:
        assert context.session_id is None
        return f"You sell for {context.deps.name} to {context.user}, who is {context.tags[0]}."

    seller = treadle.Agent(
        "seller", model="scripted/any", tools=[show_shop], deps_type=Shop, instructions=introduce
    )
    async with treadle.Engine(f"sqlite:///{tmp_path}/program.db", home=tmp_path / "home") as engine:
        engine.add_model("scripted", FunctionModel(reply))
        old = await engine.run(treadle.Agent("greeter", model="scripted/any"), "Hi.", user="ada", tags=["vip"])
        with pytest.raises(UsageError, match="needs deps of the type Shop, and the run has none"):
            await engine.fork(old.run_id, agent=seller)
        forked = await engine.fork(old.run_id, agent=seller, deps=Shop("Warp"))
        assert (await engine.wait(forked)).text == "Warp."
        assert await read_results(engine, forked) == ["Warp"]
        assert len(await engine.list_runs()) == 2
    assert "You sell for Warp to ada, who is vip." in prompts[1]
