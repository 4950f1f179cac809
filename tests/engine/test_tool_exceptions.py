"""What the log keeps of an exception that a tool raised."""

import logging
from pathlib import Path

import pytest

import treadle
from tests.api.programs import make_engine
from treadle.operations import vault
from treadle.testing.models import ask, call, say

SECRET = "tok-1b2c3d4e5f6g7h8i"


def connect() -> None:
    raise ConnectionError(f"refused for {SECRET}")


@treadle.tool
def look() -> str:
    """Look."""
    connect()
    return "seen"


async def test_the_log_has_the_traceback_without_secrets(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    agent = treadle.Agent("helper", model="scripted/any", tools=[look])
    async with make_engine(tmp_path, ask(call("look")), say("Done.")) as engine:
        await engine.call(vault.PUT, vault.PutSecret("TOKEN", SECRET))
        with caplog.at_level(logging.INFO, "treadle"):
            result = await engine.run(agent, "Go.")
    assert f"tool look of run {result.run_id} raised:\nTraceback" in caplog.text
    assert "in connect\n" in caplog.text
    assert "ConnectionError: refused for" in caplog.text
    assert SECRET not in caplog.text
