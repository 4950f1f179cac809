"""Refused calls in results of the library."""

from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest

import treadle
from treadle.domain.envelope import Event
from treadle.operations import refusal_watch
from treadle.operations.service import LocalService
from treadle.testing.models import ScriptedModel, ask, call, say


@treadle.tool
def add(a: int) -> int:
    """Add one."""
    return a + 1


async def test_refused_calls_are_found_and_journals_without_any_are_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusal_watch, "MAX_RUNS", 2)
    read: list[str] = []
    read_stored = LocalService.read_stored

    def record(self: LocalService, run_id: Any, after: int = 0) -> AsyncGenerator[Event, None]:
        read.append(run_id)
        return read_stored(self, run_id, after)

    monkeypatch.setattr(LocalService, "read_stored", record)
    turns = [turn for _ in range(5) for turn in (ask(call("add", a=1)), say("Done."))]

    async def perform() -> None:
        engine = treadle.Engine(home=tmp_path)
        engine.add_model("scripted", ScriptedModel(*turns))
        free = treadle.Agent(name="free", model="scripted/x", tools=[add])
        bound = treadle.Agent(
            name="bound",
            model="scripted/x",
            tools=[add],
            approvals={"rules": [{"tool": "add", "do": "deny"}]},
        )
        async with engine:
            await engine.run(free, "Go.")
            read.clear()  # runs are watched from the first result on
            clean = await engine.run(free, "Go.")
            assert (clean.denied, clean.blocked, read) == ((), (), [])
            refused = await engine.run(bound, "Go.")
            assert [each.tool for each in refused.denied] == ["add"]
            assert read == [refused.run_id]
            for _ in range(2):
                await engine.run(free, "Go.")
            assert read == [refused.run_id]
            await engine.wait(clean.run_id)
            assert read == [refused.run_id, clean.run_id], "it is no longer among the runs that are known"

    await perform()
