"""Runs on the real engine with real SQLite and a watcher."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import treadle
from tests.patience import HANG_SECONDS
from tests.telemetry.reading import Samples, read
from treadle.api.engine import HostedEngine, create_engine
from treadle.config.home import Home
from treadle.ports.model import Model
from treadle.telemetry.settings import Telemetry

COUNTED = Telemetry(metrics=True)


@asynccontextmanager
async def watched(folder: Path, model: Model, wanted: Telemetry = COUNTED) -> AsyncGenerator[HostedEngine, None]:
    """Yield an engine with a database in this folder and this model as the provider `scripted`."""
    engine = create_engine(f"sqlite:///{folder}/t.db", home=Home(folder / "home"), telemetry=wanted)
    engine.add_model("scripted", model)
    async with asyncio.timeout(HANG_SECONDS), engine:
        yield engine


def numbers(engine: HostedEngine) -> Samples:
    assert engine.metrics is not None
    return read(engine.metrics.render())


@treadle.tool(effect="read", repeatable=True)
async def look(place: str) -> str:
    """Look somewhere."""
    if place == "nowhere":
        raise treadle.ToolError("there is nothing")
    return f"nothing in {place}"
