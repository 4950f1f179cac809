"""The clock of the machine is set while runs are in progress: nothing ends early, and nothing waits for hours."""

import asyncio
from itertools import pairwise
from pathlib import Path

import pytest

from tests.core.run_scenario import RunScenario
from tests.engine.running import agent, journal, virtually
from tests.patience import HANG_SECONDS
from treadle.api.engine import HostedEngine, create_engine
from treadle.config.home import Home
from treadle.core.steps import CallModel
from treadle.domain import events as e
from treadle.domain.events import RunWaiting
from treadle.system.clock import SteadyClock, SystemClock
from treadle.testing.models import ScriptedFailure, ScriptedModel, Silence, say

HOURS = 3 * 3600.0
JUMPS = pytest.mark.parametrize("jump", [HOURS, -HOURS], ids=["ahead", "back"])


class Machine:
    """A machine whose clock can be set."""

    def __init__(self) -> None:
        self.offset = 1_800_000_000.0

    def time_of_day(self) -> float:
        return self.offset + asyncio.get_running_loop().time()

    def engine(self, model: ScriptedModel) -> HostedEngine:
        clock = SteadyClock(self.time_of_day, lambda: asyncio.get_running_loop().time())
        engine = create_engine("sqlite:///:memory:", home=Home(Path("/nowhere")), clock=clock)
        engine.add_model("scripted", model)
        return engine


@JUMPS
def test_deadline_passes_after_the_time_it_names(jump: float) -> None:
    async def scenario() -> None:
        machine, loop = Machine(), asyncio.get_running_loop()
        async with asyncio.timeout(HANG_SECONDS * 1000), machine.engine(ScriptedModel(Silence("hm"))) as engine:
            began = loop.time()
            run_id = await engine.submit(agent(limits={"deadline": 120}), "go")
            await asyncio.sleep(10)
            machine.offset += jump
            result = await engine.wait(run_id)
        assert result.outcome == "deadline"
        assert loop.time() - began == pytest.approx(120, abs=5)

    virtually(scenario())


@JUMPS
def test_retry_comes_after_the_time_the_provider_asks_for(jump: float) -> None:
    async def scenario() -> None:
        machine, loop = Machine(), asyncio.get_running_loop()
        model = ScriptedModel(ScriptedFailure(retry_after=300.0), say("done"))
        async with asyncio.timeout(HANG_SECONDS * 1000), machine.engine(model) as engine:
            began = loop.time()
            run_id = await engine.submit(agent(limits={"deadline": 3600}), "go")
            await asyncio.sleep(10)
            machine.offset += jump
            result = await engine.wait(run_id)
            events = await journal(engine, run_id)
        assert result.outcome == "completed"
        assert loop.time() - began == pytest.approx(300, abs=5)
        assert all(one.timestamp <= other.timestamp for one, other in pairwise(events))

    virtually(scenario())


def test_retry_is_due_where_the_clock_was_set_back_between_two_processes() -> None:
    scenario = RunScenario()
    scenario.asks()
    scenario.happens(e.LlmError(1, 1, "overloaded", "busy", True), e.LlmRetry(1, 2, scenario.now + 5, 5000))
    assert isinstance(scenario.decision(), RunWaiting)
    scenario.now -= HOURS
    assert isinstance(scenario.decision(), CallModel)


def test_system_clocks_agree_until_one_is_set() -> None:
    steady, machine = SteadyClock(), SystemClock()
    assert abs(steady.now() - machine.now()) < 5
    steady.align(1000.0)
    assert 1000.0 <= steady.now() < 1060.0
    assert isinstance(create_engine("sqlite:///:memory:").clock, SteadyClock)
