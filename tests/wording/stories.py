"""Runs whose journals hold every fact that was once only in a sentence. No story checks a text."""

import asyncio
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import treadle
from tests.engine.running import agent, in_virtual_time, journal, opened, until, virtually
from tests.engine.test_compaction import SMALL, UNCOUNTED, WORDS, is_summary
from treadle.api.engine import HostedEngine
from treadle.domain import events as e
from treadle.domain.ids import RunId
from treadle.domain.runs import Usage
from treadle.operations.replay_service import add_earlier_runs, read_recorded_run
from treadle.ports.hooks import Block, HookedCall, Rewrite
from treadle.ports.model import ModelRequest
from treadle.ports.tool import Observation, ToolError
from treadle.replay.recording import Recorded
from treadle.testing.models import (
    FunctionModel,
    ScriptedFailure,
    ScriptedModel,
    ScriptStep,
    Silence,
    ask,
    call,
    say,
)
from treadle.vault.store import SecretGrant, VaultStore

QUIET = {"recall": 0, "remember": False, "embedder": "none"}
PRICES = "models: {scripted/x: {prices: {input: 1, output: 10}, max_output: 1000}}\n"


@treadle.tool(effect="read", repeatable=True)
async def look(at: str) -> str:
    """Look at something."""
    if at == "nothing":
        raise LookupError("there is nothing")
    if at == "closed":
        raise ToolError("the door is closed")
    return "a room"


@treadle.tool(effect="read")
async def read_all(lines: int) -> str:
    """Read a lot."""
    return "".join(f"line {number}\n" for number in range(lines))


@treadle.tool(effect="read", timeout=0.5)
async def dawdle() -> str:
    """Never end."""
    await asyncio.Event().wait()
    return "never"


@treadle.tool
async def sign(text: str) -> str:
    """Sign a text."""
    return f"signed {text}"


@treadle.tool
async def post(text: str) -> str:
    """Post a text."""
    return f"posted {text}"


TOOLS = (look, read_all, dawdle, sign, post)


async def record(engine: HostedEngine, run_id: str) -> Recorded:
    service: Any = engine.service
    found = await read_recorded_run(RunId(run_id), service._journal, service._sessions, service._approvals)
    return await add_earlier_runs(found, service._journal, service._sessions)


def fail_in_every_way(folder: Path) -> list[Recorded]:
    """Calls that raise, time out, are refused, and results that are truncated."""
    model = ScriptedModel(
        ScriptedFailure(),
        ask(call("look", "a1", at="nothing"), call("look", "a2", at="closed")),
        ask(call("look", "a3"), call("dawdle", "a4")),
        ask(call("nonsense", "b1"), call("sign", "b2", text="x"), call("post", "b3", text="y")),
        ask(call("clarify", "c1", question="Which?"), call("read_all", "c2", lines=20_000)),
        ask(*(call("look", f"d{number}", at="it") for number in range(5))),
        say("done"),
    )  # fmt: skip

    async def story() -> list[Recorded]:
        async with in_virtual_time(model) as engine:
            rules = [{"tool": "sign", "do": "ask"}, {"tool": "post", "do": "deny"}]
            hero = agent(tools=[*TOOLS, "clarify"], approvals={"rules": rules}, memory=QUIET,
                         limits={"max_calls": 4}, retry={"attempts": 2, "base_ms": 10})  # fmt: skip
            result = await engine.run(hero, "go")
            return [await record(engine, result.run_id)]

    return virtually(story())


class Strict(treadle.Hook):
    """Blocks, rewrites, fails and withholds."""

    async def before(self, call: HookedCall) -> Block | Rewrite | None:
        match call.arguments.get("text"):
            case "forbidden":
                return Block("not that")
            case "shout":
                return Rewrite({"text": "SHOUT"})
            case "broken":
                raise RuntimeError("the hook is broken")
            case "leak":
                return Rewrite({"text": "hunter2-hunter2"})
            case _:
                return None

    async def after(self, call: HookedCall, result: Observation) -> Observation | None:
        match call.arguments.get("text"):
            case "hidden":
                raise RuntimeError("not to be seen")
            case "odd":
                wrong: Any = 1
                return wrong
            case _:
                return None


def ask_reviewers(folder: Path) -> list[Recorded]:
    """Approvals that are given, denied, edited and superseded; hooks; secrets."""
    texts = ("forbidden", "shout", "broken", "leak", "hidden", "odd", "{{vault:TOKEN}}", "{{vault:OTHER}}")
    model = ScriptedModel(
        *(ask(call("post", f"p{number}", text=text)) for number, text in enumerate(texts)),
        ask(call("post", "p9", text="hunter2-hunter2")),
        ask(call("sign", "s1", text="a")),
        ask(call("sign", "s2", text="b")),
        ask(call("sign", "s3", text="c")),
        ask(call("clarify", "q1", question="Which?")),
        say("done"),
    )

    async def story() -> list[Recorded]:
        with closing(VaultStore(folder / "home", {})) as vault:
            vault.put("TOKEN", "hunter2-hunter2", (SecretGrant("hero"),))
        async with opened(folder, model) as engine:
            engine.add_hooks(Strict())
            rules = [{"tool": "sign", "do": "ask"}]
            hero = agent(tools=[post, sign, "clarify"], approvals={"rules": rules}, memory=QUIET,
                         limits={"max_steps": 30})  # fmt: skip
            run_id = await engine.submit(hero, "go", asker="terminal")
            decided = 0
            async for event in engine.events(run_id):
                match event.data:
                    case e.ApprovalRequested(approval_id):
                        decided += 1
                        if decided == 1:
                            await engine.decide(approval_id, "deny", note="not that one")
                        elif decided == 2:
                            await engine.decide(approval_id, "approve", arguments={"text": "edited"})
                        else:
                            await engine.steer(run_id, "Leave that.", mode="interrupt")
                    case e.ClarifyRequested(call_id):
                        await engine.answer(run_id, call_id, "this one")
                    case _:
                        pass
            return [await record(engine, run_id)]

    return asyncio.run(story())


def wait_for_accounts(folder: Path) -> list[Recorded]:
    """Quotas that make a run wait or end, budgets with and without prices, and steps of a tree."""

    def answer(request: ModelRequest) -> ScriptStep:
        asked = request.conversation.messages[0].text
        results = sum(message.role == "tool" for message in request.conversation.messages)
        if asked == "part":
            return say("part done") if results else ask(call("look", at="it"))
        if asked == "spawn":
            return ask(call("agent_spawn", message="part", tools=["look"])) if results < 4 else say("done")
        return ask(call("look", f"c{results}", at="it"), usage=Usage(0, 1000)) if results < 3 else say("done")

    async def in_time() -> list[Recorded]:
        async with in_virtual_time(FunctionModel(answer)) as engine:
            found: list[Recorded] = []
            for more in (
                {"quotas": {"max_tool_calls_per_minute": 1}},
                {"quotas": {"max_llm_tokens_per_hour": 500}},
            ):
                result = await engine.run(agent(tools=[look], memory=QUIET, **more), "go")
                found.append(await record(engine, result.run_id))
            limited = agent(tools=[look], memory=QUIET, quotas={"max_llm_tokens_per_hour": 3000},
                            model_settings={"max_tokens": 1000})  # fmt: skip
            runs = [await engine.submit(limited, "go") for _ in range(3)]
            for run_id in runs:
                await engine.wait(run_id)
            found += [await record(engine, run_id) for run_id in runs]
            tree = agent(tools=[look, "agent_spawn"], memory=QUIET, limits={"max_steps": 5}, budget="shared")
            await engine.run(tree, "spawn")
            return found + [await record(engine, each.origin.run_id) for each in await engine.service.runs(limit=4)]

    async def priced() -> list[Recorded]:
        (folder / "home").mkdir()
        (folder / "home" / "config.yaml").write_text(PRICES)
        async with opened(folder, FunctionModel(answer)) as engine:
            result = await engine.run(agent(tools=[look], memory=QUIET, limits={"cost": 0.015}), "go")
            return [await record(engine, result.run_id)]

    return virtually(in_time()) + asyncio.run(priced())


def change_models(folder: Path) -> list[Recorded]:
    """Fallbacks, open breakers, models that cannot be resolved, and routing."""

    async def story() -> list[Recorded]:
        down = ScriptedFailure("server", "down", retryable=False, next_model=True)
        async with in_virtual_time(FunctionModel(lambda _: down)) as engine:
            engine.add_model("second", FunctionModel(lambda _: say("instead")))
            engine.add_provider("nobody", base_url="http://127.0.0.1:9/v1", api_key_env="SET_NOWHERE")
            routing = {"tiers": [{"model": "second/easy", "upto": 30}, {"model": "second/hard"}]}
            runs = [(await engine.run(agent(routing=routing, memory=QUIET), "go")).run_id]
            runs.append((await engine.run(agent(fallbacks=["openai/y"], memory=QUIET), "go")).run_id)
            falling = agent(fallbacks=["nobody/here", "second/y"], memory=QUIET)
            runs += [(await engine.run(falling, "go")).run_id for _ in range(22)]
            waiting = await engine.submit(agent(memory=QUIET, limits={"deadline": "90s"}), "go")
            await engine.wait(waiting)
            return [await record(engine, run_id) for run_id in (*runs[:2], *runs[-2:], waiting)]

    return virtually(story())


def begin_children(folder: Path) -> list[Recorded]:
    """Child runs, a full tree, unknown agents and tools, and evaluations."""

    def answer(request: ModelRequest) -> ScriptStep:
        asked = request.conversation.messages[0].text
        results = sum(message.role == "tool" for message in request.conversation.messages)
        if asked.startswith("<task>"):
            return say('{"score": 0.4, "reasons": "thin"}')
        if asked == "part":
            return say("NO_REPLY")
        if results == 0:
            return ask(*(call("agent_spawn", f"s{number}", message="part") for number in range(4)))
        if results == 1:
            return ask(call("invoke_agent", "i1", agent="nobody", message="x"),
                       call("agent_spawn", "i2", message="part", tools=["missing"]))  # fmt: skip
        return say("done")

    async def story() -> list[Recorded]:
        async with in_virtual_time(FunctionModel(answer)) as engine:
            quality = {"checker": "quality-checker", "minimum": 0.5, "retries": 1}
            hero = agent(tools=["agent_spawn", "invoke_agent", look], quality=quality, memory=QUIET,
                         limits={"max_children": 2, "max_tree": 3})  # fmt: skip
            await engine.run(hero, "go")
            return [await record(engine, each.origin.run_id) for each in await engine.service.runs(limit=20)]

    return virtually(story())


def compact_badly(folder: Path) -> list[Recorded]:
    """Summaries that fail, are empty or too long; commands to the session."""
    found: list[Recorded] = []
    summaries: list[ScriptStep] = [
        ScriptedFailure("server", "down", retryable=False),
        say(""),
        say(""),
        say(WORDS * 8),
        say("## Done\nsomething\n## Remember\n- Ada likes tea", usage=UNCOUNTED),
    ]

    @treadle.tool(effect="read")
    async def long(n: int) -> str:
        """Look for long."""
        return f"{n} {WORDS * 6}"

    turns: list[ModelRequest] = []

    def answer(request: ModelRequest) -> ScriptStep:
        if is_summary(request):
            return summaries.pop(0) if len(summaries) > 1 else summaries[0]
        turns.append(request)
        size = sum(len(str(message)) for message in request.conversation.messages) // 3
        if len(turns) % 9:
            return ask(call("long", f"c{len(turns)}", n=len(turns)), usage=Usage(size, 20))
        return say("done", usage=Usage(size, 20))

    async def story() -> None:
        async with in_virtual_time(FunctionModel(answer)) as engine:
            hero = agent(tools=[long], memory={"embedder": "none"}, **SMALL)
            session: str | None = None
            for message in (
                "one",
                "two",
                "/pin",
                "/compact",
                "/undo",
                "/usage",
                "/memory",
                "/memory tea",
                "/reset",
            ):
                result = await engine.run(hero, message, session=session, user="ada")
                session = result.session_id
                found.append(await record(engine, result.run_id))

    virtually(story())
    return found


def interrupt_a_summary(folder: Path) -> list[Recorded]:
    """Record a summary that a message interrupts."""

    def answer(request: ModelRequest) -> ScriptStep:
        if is_summary(request):
            return Silence("half")
        results = sum(message.role == "tool" for message in request.conversation.messages)
        interrupted = any("stop that" in message.text for message in request.conversation.messages)
        return say("done") if interrupted else ask(call("read_all", f"c{results}", lines=150), usage=UNCOUNTED)

    async def story() -> list[Recorded]:
        async with opened(folder, FunctionModel(answer)) as engine:
            run_id = await engine.submit(agent(tools=[read_all], memory=QUIET, **SMALL), "go")
            await until(engine, run_id, "compaction_started")
            await engine.steer(run_id, "stop that", mode="interrupt")
            await engine.wait(run_id)
            return [await record(engine, run_id)]

    return asyncio.run(story())


def remember(folder: Path) -> list[Recorded]:
    """Memories and journal notes that are recalled, in both places."""
    model = ScriptedModel(
        ask(call("journal_write", text="a quiet day")), say("Ada likes tea"), say("tea"), say("t"), say("u")
    )

    async def story() -> list[Recorded]:
        found: list[Recorded] = []
        async with opened(folder, model) as engine:
            for place in ("message", "message", "system"):
                hero = agent(tools=["journal_write"], memory={"place": place, "embedder": "none"})
                result = await engine.run(hero, "What does Ada like?", asker="terminal", user="ada")
                found.append(await record(engine, result.run_id))
            assert any(isinstance(event.data, e.MemoryRecalled) for event in await journal(engine, result.run_id))
        return found

    return asyncio.run(story())


def recover(folder: Path) -> list[Recorded]:
    """Record a worker that dies in a model call, and an engine that fails."""

    async def story() -> list[Recorded]:
        async with opened(folder, ScriptedModel(ask(call("look", at="it")), Silence("half"))) as engine:
            run_id = await engine.submit(agent(tools=[look], memory=QUIET), "go")
            await until(engine, run_id, "token")
            await engine.steer(run_id, "faster")
        async with opened(folder, ScriptedModel(Silence("again"), say("done"))) as engine:
            engine.add_tools(look)
            await until(engine, run_id, "token")
            await engine.interrupt(run_id)
            await until(engine, run_id, "run_waiting")
            await engine.resume(run_id)
            await engine.wait(run_id)
            return [await record(engine, run_id)]

    return asyncio.run(story())


STORIES: tuple[Callable[[Path], list[Recorded]], ...] = (
    fail_in_every_way, ask_reviewers, wait_for_accounts, change_models, begin_children, compact_badly,
    interrupt_a_summary, remember, recover,
)  # fmt: skip
