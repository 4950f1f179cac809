"""One run that kills its process, among others: only that run is quarantined, and the others complete."""

import asyncio
from random import Random

import pytest

from tests.domain.test_envelope import ORIGIN
from tests.engine.running import in_a_world, types, virtually
from treadle.core.state import new_state
from treadle.domain.agents import AgentSpec
from treadle.domain.ids import RunId
from treadle.domain.messages import user
from treadle.domain.runs import OutcomeKind
from treadle.engine.isolation import ISOLATION_SECONDS, Isolation
from treadle.operations.submissions import Submission
from treadle.ports.model import ModelRequest
from treadle.testing.models import ScriptStep, ask, call, say
from treadle.testing.simulation.world import PROCESS, SimulatedProcess, World

AGENT = AgentSpec("hero", "simulated", tools=("*",))
HOUR = 3600.0


def policy(request: ModelRequest, world: World) -> ScriptStep:
    """Look twice, then answer; a run that was told to die kills its process with its second model call."""
    del world
    messages = request.conversation.messages
    turns = sum(message.role == "assistant" for message in messages)
    if "die" in messages[0].text and turns == 1:
        process = PROCESS.get()
        assert process is not None
        process.journal.die()
    return say("fine") if turns == 2 else ask(call("look", f"c{turns}", n=turns))


async def start(world: World, sole: bool = True) -> SimulatedProcess:
    process = world.start(lambda operation: None, sole)
    await process.spawn(process.start())
    return process


async def submit(process: SimulatedProcess, messages: list[str]) -> list[RunId]:
    return [
        (await process.spawn(process.service.submit(Submission(AGENT, user(message))))).run_id
        for message in messages
    ]


async def outcomes(process: SimulatedProcess, runs: list[RunId]) -> list[OutcomeKind | None]:
    return [(await process.store.record(run_id)).outcome for run_id in runs]


async def revive(world: World, process: SimulatedProcess, runs: list[RunId], most: int) -> SimulatedProcess:
    """Start another process whenever one has died, until all runs have ended."""
    for _ in range(most):
        async with asyncio.timeout(HOUR):
            while not process.journal.dead and None in await outcomes(process, runs):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        if not process.journal.dead:
            return process
        process = await start(world)
    raise AssertionError(f"after {most} processes: {await outcomes(process, runs)}")


@pytest.mark.parametrize("seed", range(4))
def test_only_the_run_that_kills_its_process_is_quarantined(seed: int) -> None:
    async def scenario() -> None:
        world = World(Random(seed), policy)
        process = await start(world)
        runs = await submit(process, ["go"] * 5 + ["die"])
        process = await revive(world, process, runs, most=6)
        assert await outcomes(process, runs) == ["completed"] * 5 + ["quarantined"]
        deaths = types(await process.store.read(runs[5])).count("run_recovered")
        assert deaths == len(world.processes) - 1 <= 5

    in_a_world(scenario(), seed)


@pytest.mark.parametrize("seed", range(4))
def test_killing_processes_from_outside_quarantines_no_run(seed: int) -> None:
    """Forty processes are killed within moments, so that many runs are suspects again and again."""

    async def scenario() -> None:
        world, chance = World(Random(seed), policy), Random(seed)
        process = await start(world)
        runs = await submit(process, ["go"] * 6 + ["die"])
        for _ in range(40):
            await asyncio.sleep(chance.random() * 3)
            process.journal.die()
            process = await start(world)
        process = await revive(world, process, runs, most=20)
        assert await outcomes(process, runs) == ["completed"] * 6 + ["quarantined"]

    in_a_world(scenario(), seed)


def test_a_suspect_that_neither_finishes_nor_dies_delays_others_for_at_most_ten_seconds() -> None:
    async def scenario() -> None:
        isolation, loop = Isolation(), asyncio.get_running_loop()

        async def execute_alone() -> None:
            async with isolation.isolate(RunId("run_1"), 0):
                await asyncio.sleep(HOUR)

        async with isolation.share():
            suspect = asyncio.ensure_future(execute_alone())
            await asyncio.sleep(HOUR)  # and it does not wait for others for ever
        suspect.cancel()
        await asyncio.wait({suspect})
        suspect = asyncio.ensure_future(execute_alone())
        await asyncio.sleep(1)
        began = loop.time()
        async with isolation.share() as turn:
            assert 0 < loop.time() - began <= ISOLATION_SECONDS
            assert turn.may_continue(new_state(ORIGIN))
        suspect.cancel()
        await asyncio.wait({suspect})

    virtually(scenario())


def test_suspects_take_turns_with_the_fewest_deaths_first_and_none_overlap() -> None:
    async def scenario() -> None:
        isolation, order, executing = Isolation(), list[int](), list[int]()

        async def execute_alone(deaths: int) -> None:
            async with isolation.isolate(RunId(f"run_{deaths}"), deaths):
                assert not executing
                executing.append(deaths)
                await asyncio.sleep(4)
                executing.remove(deaths)
                order.append(deaths)

        async def execute_together() -> None:
            async with isolation.share():
                assert not executing

        suspects = [asyncio.ensure_future(execute_alone(deaths)) for deaths in (3, 1, 0, 2)]
        await asyncio.sleep(1)
        await asyncio.gather(*suspects, execute_together())
        assert order == [0, 1, 2, 3]

    virtually(scenario())
