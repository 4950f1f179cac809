"""How many runs of an agent are worked on at a time."""

import asyncio

import pytest

from tests.engine.running import agent, in_virtual_time, until, virtually
from treadle.ports.model import ModelRequest
from treadle.testing.models import FunctionModel, ScriptStep, ask, call, say


class SlowModel:
    """A model that takes a second, and knows whom it has served, and how many at a time."""

    def __init__(self) -> None:
        self.now = self.most = 0
        self.served: list[str] = []

    async def __call__(self, request: ModelRequest) -> ScriptStep:
        self.now += 1
        self.most = max(self.most, self.now)
        await asyncio.sleep(1)
        self.now -= 1
        self.served.append(request.conversation.messages[-1].text)
        return say("done")


@pytest.mark.parametrize("seed", range(3))
def test_concurrent_runs_are_limited_and_execute_in_order(seed: int) -> None:
    async def work() -> None:
        nap = SlowModel()
        async with in_virtual_time(FunctionModel(nap)) as engine:
            began = asyncio.get_running_loop().time()
            hero = agent(concurrency=2)
            runs = [await engine.submit(hero, str(number)) for number in range(8)]
            for run_id in runs:
                assert (await engine.wait(run_id)).outcome == "completed"
            assert nap.most == 2
            assert [{*nap.served[at : at + 2]} for at in range(0, 8, 2)] == [
                {str(at), str(at + 1)} for at in range(0, 8, 2)
            ]
            assert asyncio.get_running_loop().time() - began < 5.5, "no place stays empty until a sweep"

    virtually(work(), seed)


def test_runs_of_other_agents_do_not_wait() -> None:
    async def work() -> None:
        async with in_virtual_time(FunctionModel(SlowModel())) as engine:
            began = asyncio.get_running_loop().time()
            for _ in range(8):
                await engine.submit(agent(concurrency=1), "go")
            await engine.run(agent(name="other"), "go")
            assert asyncio.get_running_loop().time() - began < 1.5

    virtually(work())


def test_a_run_that_waits_for_a_run_of_its_agent_releases_its_slot() -> None:
    """An agent with one slot invokes itself twice: no run waits forever."""

    def policy(request: ModelRequest) -> ScriptStep:
        asked = request.conversation.messages[0].text
        if asked == "0" or any(message.role == "tool" for message in request.conversation.messages):
            return say(f"counted from {asked}")
        return ask(call("invoke_agent", agent="hero", message=str(int(asked) - 1)))

    async def work() -> None:
        async with in_virtual_time(FunctionModel(policy)) as engine:
            hero = agent(tools=["invoke_agent"], concurrency=1)
            engine.add_agents(hero)
            began = asyncio.get_running_loop().time()
            result, other = await asyncio.gather(engine.run(hero, "3"), engine.run(hero, "2"))
            assert (result.text, other.text) == ("counted from 3", "counted from 2")
            assert asyncio.get_running_loop().time() - began < 2.5, "and no run waits for the sweep"

    virtually(work())


def test_a_run_cancelled_before_it_got_a_slot_ends_at_once() -> None:
    async def work() -> None:
        async with in_virtual_time(FunctionModel(SlowModel())) as engine:
            hero = agent(concurrency=1)
            first, second = [await engine.submit(hero, "go") for _ in range(2)]
            await until(engine, first, "llm_request")
            began = asyncio.get_running_loop().time()
            await engine.cancel(second)
            assert (await engine.wait(second)).outcome == "cancelled"
            assert asyncio.get_running_loop().time() - began < 0.5
            assert (await engine.wait(first)).outcome == "completed"

    virtually(work())
