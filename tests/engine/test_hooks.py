"""Hooks see every call before it runs, and its result. A failing hook blocks the call."""

import asyncio
from pathlib import Path

import pytest

import treadle
from tests.engine.running import agent, in_virtual_time, journal, opened, types, virtually
from tests.observed import all_told
from treadle.domain.events import HookBlocked, ToolCallStart
from treadle.ports.hooks import HOOK_TIMEOUT_SECONDS, Block, HookedCall, Rewrite
from treadle.ports.tool import Observation
from treadle.testing.models import ScriptedModel, ask, call, say


class Echo:
    def __init__(self) -> None:
        self.said: list[str] = []

        @treadle.tool(effect="none")
        async def echo(text: str) -> str:
            """Say it again."""
            self.said.append(text)
            return text

        self.tool = echo


async def run(
    folder: Path, *hooks: treadle.Hook, text: str = "hello"
) -> tuple[Echo, str, list[str], treadle.Result]:
    """Run a script. Return the text, the results that the model got, and the types of the events."""
    echo, model = Echo(), ScriptedModel(ask(call("echo", "c1", text=text)), say("done"))

    async def scenario() -> tuple[list[str], treadle.Result]:
        async with opened(folder, model) as engine:
            engine.add_hooks(*hooks)
            result = await engine.run(agent(tools=[echo.tool]), "go")
            return types(await journal(engine, result.run_id)), result

    kinds, result = await scenario()
    [told] = all_told(model.requests[-1].conversation.messages[-1].parts)
    return echo, told.content, kinds, result


class ShoutingHook(treadle.Hook):
    """Rewrites what goes in and what comes out."""

    async def before(self, call: HookedCall) -> Rewrite:
        return Rewrite({"text": call.arguments["text"] + "!"})

    async def after(self, call: HookedCall, result: Observation) -> Observation:
        return Observation(result.content.upper(), result.exit_code)


class PoliteHook(treadle.Hook):
    async def before(self, call: HookedCall) -> Block | None:
        return Block("say please") if "please" not in call.arguments["text"] else None


class BrokenHook(treadle.Hook):
    def __init__(self, where: str) -> None:
        self._where = where

    async def before(self, call: HookedCall) -> None:
        if self._where == "before":
            raise LookupError("no idea")

    async def after(self, call: HookedCall, result: Observation) -> None:
        if self._where == "after":
            raise LookupError("no idea")


class OtherToolsHook(PoliteHook):
    tools = "other_*"


async def test_a_hook_can_change_arguments_and_results(tmp_path: Path) -> None:
    echo, told, _, _ = await run(tmp_path, ShoutingHook())
    assert (echo.said, told) == (["hello!"], "HELLO!")


async def test_hooks_run_in_the_order_they_were_added(tmp_path: Path) -> None:
    echo, told, _, _ = await run(tmp_path, ShoutingHook(), ShoutingHook())
    assert (echo.said, told) == (["hello!!"], "HELLO!!")


async def test_a_hook_may_block(tmp_path: Path) -> None:
    echo, told, kinds, result = await run(tmp_path, PoliteHook())
    assert (echo.said, result.text) == ([], "done")
    assert told == "`echo` was not run: say please"
    assert "hook_blocked" in kinds
    assert "tool_call_start" not in kinds


async def test_a_hook_sees_only_its_own_tools(tmp_path: Path) -> None:
    echo, _, _, _ = await run(tmp_path, OtherToolsHook())
    assert echo.said == ["hello"]


@pytest.mark.parametrize("where", ["before", "after"])
async def test_a_hook_that_fails_blocks(tmp_path: Path, where: str) -> None:
    """What guards something must not be passed by breaking it."""
    echo, told, kinds, _ = await run(tmp_path, BrokenHook(where))
    assert echo.said == ([] if where == "before" else ["hello"])
    assert "the hook BrokenHook failed: LookupError: no idea" in told
    assert "hello" not in told, "the result is withheld"
    assert "hook_blocked" in kinds


def test_a_hook_that_does_not_answer_blocks() -> None:
    echo, model = Echo(), ScriptedModel(ask(call("echo", "c1", text="hello")), say("done"))

    class Slow(treadle.Hook):
        async def before(self, call: HookedCall) -> None:
            await asyncio.sleep(2 * HOOK_TIMEOUT_SECONDS)

    async def scenario() -> None:
        async with in_virtual_time(model) as engine:
            engine.add_hooks(Slow())
            result = await engine.run(agent(tools=[echo.tool]), "go")
            events = [event.data for event in await journal(engine, result.run_id)]
        [blocked] = [data for data in events if isinstance(data, HookBlocked)]
        assert "did not answer within 30 s" in blocked.content

    virtually(scenario())


async def test_rewritten_arguments_that_do_not_fit_are_an_error(tmp_path: Path) -> None:
    class Odd(treadle.Hook):
        async def before(self, call: HookedCall) -> Rewrite:
            return Rewrite({"txt": 1})

    echo, told, _, _ = await run(tmp_path, Odd())
    assert echo.said == []
    assert "unknown parameter `txt`" in told


async def test_an_approval_covers_the_arguments_changed_by_a_hook(tmp_path: Path) -> None:
    echo, model = Echo(), ScriptedModel(ask(call("echo", "c1", text="hello")), say("done"))

    async with opened(tmp_path, model) as engine:
        engine.add_hooks(ShoutingHook())
        callbacks = treadle.Callbacks(on_approval=lambda event: "approve")
        hero = agent(tools=[echo.tool], approvals={"default": "ask"})
        result = await engine.run(hero, "go", callbacks)
        events = [event.data for event in await journal(engine, result.run_id)]
    assert echo.said == ["hello!"], "and the hook is not asked a second time"
    [start] = [data for data in events if isinstance(data, ToolCallStart)]
    assert start.arguments == '{"text":"hello!"}'
