"""A type that nothing emits is no part of the vocabulary: a handful of runs must bring forth every one of them."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import aclosing
from random import Random
from typing import Any

import treadle
from tests.engine.running import agent, in_a_world, in_virtual_time, until, virtually
from treadle.domain.agents import AgentSpec
from treadle.domain.events import NAMES, VOCABULARY, RunWaiting
from treadle.domain.messages import user
from treadle.models.breaker import LEAST_CALLS
from treadle.ports.model import ModelRequest
from treadle.service import Submission
from treadle.testing.faults import Fault, Operation
from treadle.testing.models import Failure, FunctionModel, ScriptedModel, ScriptStep, Silence, ask, call, say
from treadle.testing.simulation.world import Process, World

Emitted = set[str]
HERO = AgentSpec("hero", "simulated", tools=("*",))


@treadle.tool(effect="read")
async def look(at: str, context: treadle.ToolContext) -> str:
    context.progress("looking")
    if at == "nothing":
        raise LookupError("there is nothing")
    return "always the same"


async def plain(emitted: Emitted) -> None:
    """A failure and a retry, reasoning, calls that end, fail, loop and are refused, notes of every guard."""
    script: list[ScriptStep] = [
        Failure(retry_after=1.0),
        *(ask(call("look", at="it"), thinking="hm") for _ in range(3)),
        *(ask(call("look", at="nothing", n=number)) for number in range(3)),
        say(""),
        say("half", stop="max_tokens"),
        say("a"),
        say("1"),
    ]
    async with in_virtual_time(ScriptedModel(*script)) as engine:
        hero = agent(tools=[look], output={"type": "integer"}, limits={"max_steps": 11}, budget_hints=True)
        async for event in engine.stream(hero, "go"):
            emitted.add(event.type)


async def steered(emitted: Emitted) -> None:
    """Messages, an interrupt, a resume, a cancel."""
    async with in_virtual_time(ScriptedModel(Silence("one"), Silence("two"), Silence("three"))) as engine:
        run_id = await engine.submit(agent(), "go")

        async def listen() -> None:
            async with aclosing(engine.events(run_id)) as events:
                async for event in events:
                    emitted.add(event.type)

        listening = asyncio.ensure_future(listen())
        await until(engine, run_id, "token")
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


async def failing(emitted: Emitted) -> None:
    """A model that is left alone after a while and comes back; a fallback."""
    down = Failure("server", "down", retryable=False, next_model=True)
    answers = iter([*[down] * LEAST_CALLS, say("up again")])
    async with in_virtual_time(FunctionModel(lambda _: next(answers))) as engine:
        engine.add_model("second", FunctionModel(lambda _: say("instead")))
        for hero in (agent(fallbacks=["second/y"]), *[agent()] * LEAST_CALLS):
            async for event in engine.stream(hero, "go"):
                emitted.add(event.type)


async def slow(emitted: Emitted) -> None:
    """A reader that falls behind."""
    async with in_virtual_time(ScriptedModel(say("one two three four", seconds=1.0))) as engine:
        run_id = await engine.submit(agent(), "go")
        async with aclosing(engine.service.events(run_id, backlog=1)) as events:
            async for event in events:
                emitted.add(event.type)
                if event.type == "token":
                    await asyncio.sleep(10)


async def killed(emitted: Emitted) -> None:
    """A run that kills its worker each time; a worker that stands still past its lease."""
    stalling: list[Process] = []

    def answer(request: ModelRequest, world: World) -> ScriptStep:
        for process in stalling:
            process.journal.stall(30)
        return say("done")

    world = World(Random(1), answer)
    first = world.start(dies_at_its_first_advance(), sole=True)
    ticket = await first.spawn(first.service.submit(Submission(HERO, user("go"))))
    for process in (first, *(world.start(dies_at_its_first_advance(), sole=True) for _ in range(3))):
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
            async for event in heard:
                emitted.update(() if event is None else (event.type,))

        listening = sound.spawn(listen())
        await asyncio.sleep(5)
        stalling.clear()
        other = world.start(lambda operation: None, sole=False)
        await other.spawn(other.start())
        await other.spawn(other.service.wait(ticket.run_id))
        await asyncio.sleep(60)
        listening.cancel()


def dies_at_its_first_advance() -> Callable[[Operation], Fault | None]:
    seen: list[Operation] = []

    def plan(operation: Operation) -> Fault | None:
        seen.append(operation)
        return "after" if operation == "advance" and seen.count("advance") == 1 else None

    return plan


def emitted_by(scenario: Callable[[Emitted], Coroutine[Any, Any, None]]) -> Emitted:
    emitted: Emitted = set()
    (in_a_world if scenario is killed else virtually)(scenario(emitted))
    return emitted


def test_every_type_of_the_vocabulary_is_emitted_and_no_other() -> None:
    emitted = set[str]().union(*(emitted_by(scenario) for scenario in (plain, steered, failing, slow, killed)))
    assert emitted == set(VOCABULARY)
    assert set(NAMES.values()) == set(VOCABULARY)
