"""Whole runs on the real engine over real SQLite, with a scripted model and, where time matters, virtual time."""

import asyncio
from collections.abc import AsyncGenerator, Coroutine, Sequence
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from random import Random
from typing import Any, TypeVar

import pytest

import treadle
from tests.patience import HANG_SECONDS
from treadle.api.engine import HostedEngine, create_engine
from treadle.config.home import Home
from treadle.domain.envelope import Event
from treadle.memory import local_embedder
from treadle.ports.clock import Clock, Ids
from treadle.ports.memory import EmbeddingFailed
from treadle.ports.model import Model
from treadle.testing.simulation.loop import SimulatedLoop
from treadle.testing.simulation.world import adopting_factory
from treadle.testing.time import LoopClock

Answer = TypeVar("Answer")


@asynccontextmanager
async def opened(
    folder: Path, model: Model, *, clock: Clock | None = None, ids: Ids | None = None, home: Path | None = None
) -> AsyncGenerator[HostedEngine, None]:
    """Yield an engine with a database in this folder and this model as the provider `scripted`."""
    engine = create_engine(f"sqlite:///{folder}/t.db", home=Home(home or folder / "home"), clock=clock, ids=ids)
    engine.add_model("scripted", model)
    async with asyncio.timeout(HANG_SECONDS), engine:
        yield engine


@asynccontextmanager
async def in_virtual_time(model: Model) -> AsyncGenerator[HostedEngine, None]:
    """Yield an engine with a database in memory, in virtual time. For `virtually`."""
    engine = create_engine("sqlite:///:memory:", home=Home(Path("/nowhere")), clock=LoopClock())
    engine.add_model("scripted", model)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(local_embedder, "_create_encoder", _without_embedder)  # its thread works in real time
        async with asyncio.timeout(HANG_SECONDS * 1000), engine:
            yield engine


def _without_embedder() -> Any:
    raise EmbeddingFailed("there is no embedder in virtual time")


def virtually(work: Coroutine[Any, Any, Answer], seed: int = 1) -> Answer:
    """Run a coroutine to its end in virtual time, and return its result."""
    loop = SimulatedLoop(Random(seed))
    try:
        return loop.run_until_complete(work)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def in_a_world(work: Coroutine[Any, Any, None], seed: int = 1) -> None:
    """Run a coroutine to its end in virtual time, with simulated processes. Cancel all tasks that are left."""
    loop = SimulatedLoop(Random(seed))
    loop.set_task_factory(adopting_factory)
    try:
        loop.run_until_complete(work)
    finally:
        tasks = asyncio.all_tasks(loop)
        for task in tasks:
            task.cancel()
        if tasks:
            loop.run_until_complete(asyncio.wait(tasks))
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


def agent(**more: Any) -> treadle.Agent:
    fields: dict[str, Any] = {"name": "hero", "model": "scripted/x", **more}
    return treadle.Agent(**fields)


async def until(engine: HostedEngine, run_id: str, *types: str, after: int = 0) -> Event:
    """Wait for the first event of one of these types, and return it."""
    async with aclosing(engine.events(run_id, after)) as events:
        async for event in events:
            if event.type in types:
                return event
    raise AssertionError(f"{run_id} ended without {types}")


async def journal(engine: HostedEngine, run_id: str) -> list[Event]:
    """Return all durable events of a run that has ended."""
    async with aclosing(engine.events(run_id)) as events:
        return [event async for event in events if event.durable]


def types(events: Sequence[Event]) -> list[str]:
    return [event.type for event in events]


class Gate:
    """A place in a tool where it waits until it is let through."""

    def __init__(self) -> None:
        self.reached = asyncio.Event()
        self.open = asyncio.Event()

    async def pass_through(self) -> None:
        self.reached.set()
        await self.open.wait()
