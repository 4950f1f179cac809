"""Owning a run: deliveries are processed while work is in progress, whenever they arrive."""

import asyncio
from random import Random

import pytest

from tests.engine.running import in_a_world
from tests.patience import HANG_SECONDS
from treadle.core.state import RunState
from treadle.domain.agents import AgentSpec
from treadle.domain.errors import Fenced
from treadle.domain.events import StepStart
from treadle.domain.ids import RunId
from treadle.domain.messages import user
from treadle.engine.owned_run import OwnedRun
from treadle.operations.submissions import Submission
from treadle.testing.models import say
from treadle.testing.simulation.world import SimulatedProcess, World


def is_cancelled(state: RunState) -> bool:
    return state.cancelled is not None


async def wait_for_ever() -> None:
    await asyncio.Event().wait()


async def a_process_and_a_run(seed: int) -> tuple[SimulatedProcess, RunId]:
    """Return a process with random delays, and an unclaimed run."""
    world = World(Random(seed), lambda request, world: say("done"))
    process = world.start(lambda operation: None, sole=False)
    ticket = await process.service.submit(Submission(AgentSpec("hero", "simulated"), user("go")))
    return process, ticket.run_id


@pytest.mark.parametrize("seed", range(30))
def test_a_cancel_that_comes_with_the_intent_stops_the_work(seed: int) -> None:
    async def scenario() -> None:
        process, run_id = await a_process_and_a_run(seed)
        run = OwnedRun(await process.journal.claim(run_id, "me"), process.deps.worker)
        await asyncio.gather(run.intend(StepStart(1)), process.service.cancel(run_id))
        async with asyncio.timeout(HANG_SECONDS):
            assert not await run.run_unless(is_cancelled, wait_for_ever())

    in_a_world(scenario(), seed)


@pytest.mark.parametrize("seed", range(30))
def test_a_cancel_directly_after_another_delivery_stops_the_work(seed: int) -> None:
    async def scenario() -> None:
        process, run_id = await a_process_and_a_run(seed)
        run = OwnedRun(await process.journal.claim(run_id, "me"), process.deps.worker)
        assert await run.intend(StepStart(1))

        async def people() -> None:
            await process.service.steer(run_id, user("hello"))
            await process.service.cancel(run_id)

        async with asyncio.timeout(HANG_SECONDS):
            done, _ = await asyncio.gather(run.run_unless(is_cancelled, wait_for_ever()), people())
        assert not done
        assert len(run.state.turn.inbox) == 2

    in_a_world(scenario(), seed)


def test_unstopped_work_finishes_while_deliveries_are_folded() -> None:
    async def scenario() -> None:
        process, run_id = await a_process_and_a_run(1)
        run = OwnedRun(await process.journal.claim(run_id, "me"), process.deps.worker)
        await run.intend(StepStart(1))

        async def work() -> None:
            await process.service.steer(run_id, user("hello"))
            await asyncio.sleep(10)

        assert await run.run_unless(is_cancelled, work())
        assert [message.text for message in run.state.turn.inbox] == ["go", "hello"]

    in_a_world(scenario())


def test_intents_without_seen_deliveries_are_not_executed() -> None:
    async def scenario() -> None:
        process, run_id = await a_process_and_a_run(1)
        run = OwnedRun(await process.journal.claim(run_id, "me"), process.deps.worker)
        await process.service.cancel(run_id)
        assert not await run.intend(StepStart(1))
        assert run.state.cancelled is not None
        assert run.state.step.number == 0
        assert await run.intend(StepStart(1))
        assert run.state.step.number == 1

    in_a_world(scenario())


def test_a_worker_whose_run_was_taken_over_cannot_write() -> None:
    async def scenario() -> None:
        process, run_id = await a_process_and_a_run(1)
        run = OwnedRun(await process.journal.claim(run_id, "me"), process.deps.worker)
        await asyncio.sleep(20)
        claim = await process.journal.claim(run_id, "another")
        assert claim.death is not None
        before = await process.store.read(run_id)
        with pytest.raises(Fenced):
            await run.intend(StepStart(1))
        assert await process.store.read(run_id) == before

    in_a_world(scenario())
