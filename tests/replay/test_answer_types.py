"""Replay of runs whose answers the type of the caller refuses."""

import asyncio
from pathlib import Path
from typing import Any

import msgspec

import treadle
from tests.engine.running import opened
from tests.replay.test_replay import record_of
from treadle.domain.events import OutputRejected, RunEnd
from treadle.replay.recording import Recorded
from treadle.replay.replay import Replayed, replay
from treadle.testing.models import ScriptedModel, say
from treadle.tools.toolbox import ToolRegistry


class Even(msgspec.Struct):
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError(f"{self.number} is odd: it must be even")


def with_end(record: Recorded, **fields: Any) -> Recorded:
    """Return a record whose last event has other values."""
    *events, end = record.events
    data = msgspec.structs.replace(end.data, **fields)
    changed = msgspec.structs.replace(end, data=data, raw=msgspec.json.encode(data))
    return msgspec.structs.replace(record, events=(*events, changed))


def test_the_last_refusal_is_replayed_from_a_fact_and_not_from_the_reason(tmp_path: Path) -> None:
    async def scenario() -> Recorded:
        model = ScriptedModel(*(say(f'{{"number": {number}}}') for number in (1, 3, 5)))
        async with opened(tmp_path, model) as engine:
            hero = treadle.Agent(name="hero", model="scripted/x", output=Even)
            result = await engine.run(hero, "an even number")
            return await record_of(engine, result.run_id)

    record = asyncio.run(scenario())
    end = record.events[-1].data
    assert isinstance(end, RunEnd)
    assert end.mismatch == "5 is odd: it must be even"
    rejected = [event.data.error for event in record.events if isinstance(event.data, OutputRejected)]
    assert rejected == ["1 is odd: it must be even", "3 is odd: it must be even"]

    def play(recorded: Recorded) -> Replayed:
        return replay(recorded, ToolRegistry())

    assert (play(record).divergence, play(record).wording) == (None, ())
    reworded = play(with_end(record, reason="No attempt fitted"))
    assert (reworded.divergence, [each.type for each in reworded.wording]) == (None, ["run_end"])
    older = play(with_end(record, mismatch=""))
    assert (older.divergence, [each.type for each in older.wording]) == (None, ["run_end"])
