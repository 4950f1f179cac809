"""Every event type is emitted: a small set of runs must produce all of them."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing, closing, suppress
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import treadle
from tests.automation.clockwork import Clockwork
from tests.automation.receiver import receiver
from tests.automation.served import served, signed
from tests.channels.home import chatting
from tests.engine.running import agent, in_a_world, in_virtual_time, opened, until, virtually
from tests.mcp.homes import make_agent, make_home, make_server, open_engine
from treadle.core.context.compaction import INSTRUCTIONS
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import InvalidState
from treadle.domain.events import (
    NAMES,
    VOCABULARY,
    ApprovalRequested,
    ClarifyRequested,
    RunWaiting,
)
from treadle.domain.mcp_servers import McpServerSettings
from treadle.domain.messages import user
from treadle.domain.runs import Usage
from treadle.models.breaker import MIN_CALLS
from treadle.operations.automation import NewSchedule
from treadle.operations.submissions import Submission
from treadle.ports.hooks import Block, HookedCall
from treadle.ports.model import ModelRequest
from treadle.sandbox.commands import ShellCommands
from treadle.testing.faults import Fault, Operation
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
from treadle.testing.simulation.world import SimulatedProcess, World
from treadle.tools.bash import Bash
from treadle.vault.store import SecretGrant, VaultStore

Emitted = set[str]
CANARY = "s3cr3t-canary-value"
ENOUGH = {"webhook_delivered", "webhook_failed"}
UNCOUNTED = Usage(estimated=True)
HERO = AgentSpec("hero", "simulated", tools=("*",))


@treadle.tool(effect="read")
async def look(at: str, context: treadle.ToolContext) -> str:
    context.progress("looking")
    if at == "nothing":
        raise LookupError("there is nothing")
    return "always the same"


@treadle.tool(effect="read")
async def fetch_all() -> str:
    """Fetch a lot."""
    return "line\n" * 100_000


@treadle.tool(effect="read")
async def look_long(n: int) -> str:
    """Look for long."""
    return f"{n} words " * 80


@treadle.tool
async def post() -> str:
    """Post something."""
    return "posted"


async def plain(emitted: Emitted) -> None:
    """Produce a retry, reasoning, calls that end, fail, repeat and are refused, and the notes of every guard."""
    script: list[ScriptStep] = [
        ScriptedFailure(retry_after=1.0),
        *(ask(call("look", at="it"), thinking="hm") for _ in range(3)),
        *(ask(call("look", at="nothing", n=number)) for number in range(3)),
        say(""),
        say('<tool_call>{"name": "look", "arguments": {}}</tool_call>'),
        say("half", stop="max_tokens"),
        say("a"),
        say("1"),
        say("2"),
    ]
    async with in_virtual_time(ScriptedModel(*script)) as engine:
        hero = agent(tools=[look], output={"type": "integer"}, limits={"max_steps": 12}, budget_hints=True)
        run_id = await engine.submit(hero, "go")
        async for event in engine.events(run_id):
            emitted.add(event.type)
        async for event in engine.events(await engine.fork(run_id, step=1)):
            emitted.add(event.type)
    two = ask(call("look", "c1", at="a"), call("look", "c2", at="b"))
    async with in_virtual_time(ScriptedModel(two, say("done"))) as engine:
        async for event in engine.events(await engine.submit(agent(tools=[look], limits={"max_calls": 1}), "go")):
            emitted.add(event.type)


async def steer_run(emitted: Emitted) -> None:
    """Messages, an interrupt, a resume, a cancel."""
    async with in_virtual_time(ScriptedModel(Silence("one"), Silence("two"), Silence("three"))) as engine:
        run_id = await engine.submit(agent(), "go")

        async def listen() -> None:
            async with aclosing(engine.events(run_id)) as events:
                async for event in events:
                    emitted.add(event.type)

        listening = asyncio.ensure_future(listen())
        await until(engine, run_id, "token")
        session = (await engine.service.run(run_id)).origin.session_id
        await engine.service.modes.change(session, "plan", "ann")
        await engine.steer(run_id, "not that", mode="interrupt")
        await until(engine, run_id, "llm_response")
        await engine.interrupt(run_id)
        parked = await until(engine, run_id, "run_waiting")
        assert isinstance(parked.data, RunWaiting)
        await engine.resume(run_id)
        await until(engine, run_id, "llm_request", after=parked.sequence)
        await engine.cancel(run_id)
        await engine.wait(run_id)
        await listening


async def fail_models(emitted: Emitted) -> None:
    """Produce an open circuit breaker that closes again, and a fallback."""
    down = ScriptedFailure("server", "down", retryable=False, next_model=True)
    answers = iter([*[down] * MIN_CALLS, say("up again")])
    async with in_virtual_time(FunctionModel(lambda _: next(answers))) as engine:
        engine.add_model("second", FunctionModel(lambda _: say("instead")))
        for hero in (agent(fallbacks=["second/y"]), *[agent()] * MIN_CALLS):
            async for event in engine.stream(hero, "go"):
                emitted.add(event.type)


async def slow(emitted: Emitted) -> None:
    """Produce a stream reset with a slow reader."""
    async with in_virtual_time(ScriptedModel(say("one two three four", seconds=1.0))) as engine:
        run_id = await engine.submit(agent(), "go")
        async with aclosing(engine.service.events(run_id, backlog=1)) as events:
            async for event in events:
                emitted.add(event.type)
                if event.type == "token":
                    await asyncio.sleep(10)


async def kill_worker(emitted: Emitted) -> None:
    """Produce a run that kills its worker each time, and a worker that stalls past its lease."""
    stalling: list[SimulatedProcess] = []

    def answer(request: ModelRequest, world: World) -> ScriptStep:
        for process in stalling:
            process.journal.stall(30)
        return say("done")

    world = World(Random(1), answer)
    first = world.start(dies_at_its_advance(1), sole=True)
    ticket = await first.spawn(first.service.submit(Submission(HERO, user("go"))))
    for process in (first, *(world.start(dies_at_its_advance(number), sole=True) for number in (1, 3, 1, 1))):
        await process.spawn(process.start())
        await asyncio.sleep(30)
        assert process.journal.dead
    sound = world.start(lambda operation: None, sole=True)
    await sound.spawn(sound.start())
    await sound.spawn(sound.service.wait(ticket.run_id))
    emitted |= {event.type for event in await sound.store.read(ticket.run_id)}
    stalling[:] = [sound]
    ticket = await sound.spawn(sound.service.submit(Submission(HERO, user("go"))))
    with sound.hub.subscribe(ticket.run_id) as heard:

        async def listen() -> None:
            while (events := await heard.take()) is not None:
                emitted.update([event.type for event in events])

        listening = sound.spawn(listen())
        await asyncio.sleep(5)
        stalling.clear()
        other = world.start(lambda operation: None, sole=False)
        await other.spawn(other.start())
        await other.spawn(other.service.wait(ticket.run_id))
        await asyncio.sleep(60)
        listening.cancel()


async def decide_approvals(emitted: Emitted) -> None:
    """Produce a long result, a blocking hook, a claimed action, a question, and approvals that are decided and
    not."""
    calls = [
        ask(call("fetch_all", "c1")),
        ask(call("look", "c2", at="forbidden")),
        ask(call("clarify", "c3", question="Which?")),
        ask(call("post", "c4")),
        ask(call("post", "c5")),
        say("I have sent the email."),
        say("I sent nothing."),
    ]

    class Strict(treadle.Hook):
        async def before(self, call: HookedCall) -> Block | None:
            return Block("not there") if call.arguments.get("at") == "forbidden" else None

    async with in_virtual_time(ScriptedModel(*calls)) as engine:
        engine.add_hooks(Strict())
        rules = [{"tool": "post", "do": "ask"}]
        hero = agent(tools=[look, fetch_all, post, "clarify"], approvals={"rules": rules, "expires": 60})
        decided = iter(["deny"])
        async for event in engine.stream(hero, "go", asker="terminal"):
            emitted.add(event.type)
            match event.data:
                case ClarifyRequested(call_id):
                    await engine.answer(event.run_id, call_id, "this one")
                case ApprovalRequested(approval_id) if next(decided, None):
                    await engine.decide(approval_id, "deny")
                case _:
                    pass


async def run_tools_of_the_client(emitted: Emitted) -> None:
    """Produce a call that the client runs, and its result."""

    async def weather() -> str:
        return "sunny"

    async with in_virtual_time(ScriptedModel(ask(call("weather", "c1")), say("sunny"))) as engine:
        async for event in engine.stream(agent(), "go", client_tools=[weather]):
            emitted.add(event.type)


async def use_secrets(emitted: Emitted) -> None:
    """Produce a secret that is used, one that is denied, and one that is redacted."""
    calls = [
        ask(call("look", "c1", at="{{vault:TOKEN}}")),
        ask(call("look", "c2", at="{{vault:OTHER}}")),
        say("done"),
    ]
    with TemporaryDirectory() as folder:
        with closing(VaultStore(Path(folder), {})) as store:
            store.put("TOKEN", CANARY, (SecretGrant("hero"),))
        async with opened(Path(folder), ScriptedModel(*calls), home=Path(folder)) as engine:
            async for event in engine.stream(agent(tools=[look]), f"it is {CANARY}"):
                emitted.add(event.type)
                assert CANARY not in event.raw.decode()


async def run_commands(emitted: Emitted) -> None:
    """Produce a command that takes too long, and one that must be confined where that is impossible."""
    calls = [ask(call("bash", "c1", command="sleep 60", timeout=0.3)), say("done")]
    for policy, commands in (("off", ShellCommands()), ("required", ShellCommands(bubblewrap="no-such-program"))):
        with TemporaryDirectory() as folder:
            async with opened(Path(folder), ScriptedModel(*calls)) as engine:
                engine.add_tools(Bash(commands))
                hero = agent(tools=["bash"], sandbox=policy, workspace=folder)
                async for event in engine.stream(hero, "go"):
                    emitted.add(event.type)
        commands.close()


async def long(emitted: Emitted) -> None:
    """Produce a conversation that exceeds its window, a failed summary, and the session commands."""

    def answer(request: ModelRequest) -> ScriptStep:
        if request.preamble.system.startswith(INSTRUCTIONS):
            summaries.append(request)
            if len(summaries) == 1:
                return ScriptedFailure(retryable=False)
            return say("## Done\nsomething\n## Remember\n- Ada likes tea", usage=UNCOUNTED)
        asked.append(request)
        if len(asked) % 25:
            return ask(call("look_long", f"c{len(asked)}", n=len(asked)), usage=UNCOUNTED)
        return say("done", usage=UNCOUNTED)

    asked, summaries = list[ModelRequest](), list[ModelRequest]()
    async with in_virtual_time(FunctionModel(answer)) as engine:
        tools = [look_long, "memory_save", "journal_write"]
        hero = agent(tools=tools, limits={"context_window": 2000}, memory={"embedder": "none"})
        session: str | None = None
        for message in ("look", "/pin", "/compact", "/undo"):
            run_id = await engine.submit(hero, message, session=session, user="ada")
            async for event in engine.events(run_id):
                session = event.session_id
                emitted.add(event.type)


async def use_memory(emitted: Emitted) -> None:
    """Produce saved and recalled memories, with an embedder that cannot be reached."""
    script = (ask(call("journal_write", text="a quiet day"), text="so"), say("Ada likes tea"), say("tea"))
    with TemporaryDirectory() as folder:
        async with opened(Path(folder), ScriptedModel(*script)) as engine:
            engine.add_provider("nobody", base_url="http://127.0.0.1:9/v1", api_key="x")
            hero = agent(tools=["journal_write"], memory={"embedder": "nobody/there"})
            for message in ("What does Ada like?", "What is it that Ada likes?"):
                async for event in engine.stream(hero, message, user="ada"):
                    emitted.add(event.type)


async def bounded(emitted: Emitted) -> None:
    """Produce reservations, a quota warning and a quota that is exceeded."""
    with TemporaryDirectory() as folder:
        (home := Path(folder) / "home").mkdir()
        (home / "config.yaml").write_text("models: {scripted/x: {prices: {input: 1, output: 10}}}\n")
        async with opened(Path(folder), ScriptedModel(ask(call("look", at="x"), usage=Usage(2950)))) as engine:
            quotas = {"max_tool_calls_per_minute": 1, "max_llm_tokens_per_hour": 3000}
            hero = agent(tools=[look], quotas=quotas, model_settings={"max_tokens": 100})
            for one in (hero, agent(name="poor", limits={"cost": 0.00001})):
                async for event in engine.stream(one, "go"):
                    emitted.add(event.type)


async def fire_schedules(emitted: Emitted) -> None:
    """Produce a schedule that fires, and one whose previous run has not ended."""
    works = Clockwork()
    await works.book.add(NewSchedule("hero", "go", 60))
    for _ in range(2):
        works.clock.pass_time(60)
        await works.scheduler.fire_due()
    emitted |= {placed.event.type for placed in await works.journal.after(0)}


async def from_outside(emitted: Emitted) -> None:
    """Produce a message of an inbound webhook, and deliveries to webhooks that succeed and fail."""
    with TemporaryDirectory() as folder:
        async with (
            served(Path(folder), FunctionModel(lambda _: Silence("hm"))) as web,
            receiver() as other,
            web.engine.context.automation().run_in_background(),
        ):
            for url in (other.url, "http://127.0.0.1:9/"):
                await web.ask("POST", "/v1/webhooks", {"url": url})
            hook = await web.ask("POST", "/v1/hooks", {"name": "n", "agent": "hero", "message": "go"})
            headers = signed(hook.json["secret"], "msg", b"{}", web.engine.clock.now())
            sent = await web.send("POST", hook.json["path"], b"{}", headers)
            async for event in web.engine.events(sent.json["run_id"]):
                emitted.add(event.type)
                if event.type in ENOUGH and emitted >= ENOUGH:
                    with suppress(InvalidState):  # it may be at its end already
                        await web.engine.cancel(event.run_id)


async def answer_on_channel(emitted: Emitted) -> None:
    """Produce a message of a channel whose answer is sent after a failed attempt."""
    with TemporaryDirectory() as folder:
        async with chatting(Path(folder), FunctionModel(lambda _: say("hi")), streaming=False) as chat:
            await chat.admit(11)
            reading = asyncio.create_task(read_channel_events(chat.engine.context.service.live_feed(), emitted))
            while not reading.done():  # a reader that is late misses live events: there are more
                if "channel_failed" not in emitted:
                    chat.fake.errors["sendMessage"] = [{"error_code": 403, "description": "Forbidden"}]
                await chat.fake.write(11, "hello")
                await asyncio.wait({reading}, timeout=0.5)
            await reading


async def read_channel_events(pages: Any, emitted: Emitted) -> None:
    async with aclosing(pages) as feed:
        async for batch in feed:
            for item in batch:
                event = getattr(item, "event", item)
                emitted |= {event.type} if hasattr(event, "type") else set()
            if {"channel_received", "channel_sent", "channel_failed"} <= emitted:
                return


async def family(emitted: Emitted) -> None:
    """Produce a child run that asks a person, one that is stopped with its parent, a score and a diagnosis."""

    def policy(request: ModelRequest) -> ScriptStep:
        said = request.conversation.messages[0].text
        if said.startswith("<task>"):
            return say('{"score": 1, "reasons": "fine"}')
        if said == "part":
            return ask(call("post"))
        return say("answer") if said == "say" else ask(call("agent_spawn", message="part"))

    async with in_virtual_time(FunctionModel(policy)) as engine:
        asks = {"default": "auto", "via": "api", "rules": [{"tool": "post", "do": "ask"}]}
        judged = {"quality": {"checker": "quality-checker"}, "errors": {"analyzer": "error-analyzer"}}
        parent = await engine.submit(agent(tools=["agent_spawn", post], approvals=asks), "go")
        await until(engine, parent, "agent_waiting")
        await engine.cancel(parent)
        failed = await engine.submit(agent(limits={"max_depth": 0}, tools=["agent_spawn"], **judged), "go")
        for run_id in (parent, failed, await engine.submit(agent(**judged), "say")):
            async for event in engine.events(run_id):
                emitted.add(event.type)


async def call_mcp_servers(emitted: Emitted) -> None:
    """Produce an MCP server that is used, one that ends during a call, and one that cannot start."""
    with TemporaryDirectory() as folder:
        home = make_home(Path(folder) / "home", s=make_server(), gone=McpServerSettings(command="no-such-program"))
        steps = (ask(call("s__echo", text="x")), ask(call("s__die")), ask(call("gone__pid")), say("done"))
        async with open_engine(home, *steps) as engine:
            hero = make_agent(Path(folder) / "w", sandbox="off")
            async for event in engine.stream(hero, "go"):
                emitted.add(event.type)


def dies_at_its_advance(number: int) -> Callable[[Operation], Fault | None]:
    seen: list[Operation] = []

    def plan(operation: Operation) -> Fault | None:
        seen.append(operation)
        return "after" if operation == "advance" and seen.count("advance") == number else None

    return plan


def collect_types(scenario: Callable[[Emitted], Coroutine[Any, Any, None]]) -> Emitted:
    emitted: Emitted = set()
    if scenario in (
        use_secrets,
        run_commands,
        use_memory,
        bounded,
        fire_schedules,
        from_outside,
        answer_on_channel,
        call_mcp_servers,
    ):
        asyncio.run(scenario(emitted))
    else:
        (in_a_world if scenario is kill_worker else virtually)(scenario(emitted))
    return emitted


SCENARIOS = (
    plain, steer_run, fail_models, slow, kill_worker, decide_approvals, run_tools_of_the_client, use_secrets,
    run_commands, long, use_memory, bounded, fire_schedules, from_outside, answer_on_channel, family,
    call_mcp_servers,
)  # fmt: skip


def test_every_type_of_the_vocabulary_is_emitted_and_no_other() -> None:
    emitted = set[str]().union(*(collect_types(scenario) for scenario in SCENARIOS))
    assert emitted == set(VOCABULARY)
    assert set(NAMES.values()) == set(VOCABULARY)
