"""A repeated request counts once, whatever the state of its run."""

import asyncio
from pathlib import Path

from tests.patience import HANG_SECONDS
from treadle import Agent
from treadle.api.engine import HostedEngine, create_engine
from treadle.config.home import Home
from treadle.domain.ids import RunId
from treadle.ports.model import ModelRequest
from treadle.testing.models import FunctionModel, ScriptStep, Silence, say

AGENT = Agent(name="ada", model="fake/m-1")


def engine_in(folder: Path) -> HostedEngine:
    """Return an engine whose model never answers, except to a request to continue."""

    def answer(request: ModelRequest) -> ScriptStep:
        return say("done") if "Go on" in request.conversation.messages[-1].text else Silence("hm")

    engine = create_engine(f"sqlite:///{folder / 'treadle.db'}", home=Home(folder))
    engine.add_model("fake", FunctionModel(answer))
    return engine


async def waiting_run(engine: HostedEngine, key: str | None = None) -> RunId:
    """Return an interrupted run in the session `ses_1`."""
    run_id = await engine.submit(AGENT, "hello", session="ses_1", key=key)
    await wait_for_type(engine, run_id, "llm_request")
    await engine.interrupt(run_id)
    await wait_for_type(engine, run_id, "run_waiting")
    return run_id


async def wait_for_type(engine: HostedEngine, run_id: str, type_: str) -> None:
    async for event in engine.events(run_id):
        if event.type == type_:
            return


async def test_a_request_is_not_taken_for_a_new_message_to_its_own_run(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_SECONDS), engine_in(tmp_path) as engine:
        run_id = await waiting_run(engine, key="k")
        before = (await engine.service.run(run_id)).sequence
        assert await engine.submit(AGENT, "hello", session="ses_1", key="k") == run_id
        assert (await engine.service.run(run_id)).sequence == before, "the message was taken twice"


async def test_a_request_that_went_to_a_waiting_run_is_known_after_its_end(tmp_path: Path) -> None:
    async with asyncio.timeout(HANG_SECONDS), engine_in(tmp_path) as engine:
        run_id = await waiting_run(engine)
        assert await engine.submit(AGENT, "Go on, please", session="ses_1", key="k") == run_id
        await engine.wait(run_id)
        assert await engine.submit(AGENT, "Go on, please", session="ses_1", key="k") == run_id
