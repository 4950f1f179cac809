"""Whatever becomes of runs in the simulation, with crashes around any write, people who meddle, approvals and
accounts: the code that wrote a journal writes it again."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from treadle.replay.replay import Replayed, replay
from treadle.service.replaying import recorded
from treadle.testing.simulation import scenario
from treadle.testing.simulation.__main__ import schedule_of
from treadle.testing.simulation.scenario import simulate
from treadle.testing.simulation.world import World

SEEDS, BLOCK = 160, 40
EXPLAINED = ("a summary in pieces was interrupted",)
"""What is not on record, and is said to be."""


@pytest.fixture
def worlds(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[World]]:
    """The worlds of the simulations that were run, with their disks."""
    found: list[World] = []
    check: Any = scenario.check_journals

    def kept(world: World, *more: Any) -> Any:
        found.append(world)
        return check(world, *more)

    monkeypatch.setattr(scenario, "check_journals", kept)
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    yield found
    logging.disable(before)


def replays_of(world: World) -> list[Replayed]:
    process = world.start(lambda operation: None, sole=True)

    async def gathered() -> list[Any]:
        store, sessions, approvals = process.store, process.deps.sessions, process.deps.approvals
        runs = await store.find(limit=100)
        return [await recorded(run.origin.run_id, store, sessions, approvals) for run in runs]

    return [replay(record, process.deps.tools) for record in asyncio.run(gathered())]


@pytest.mark.parametrize("first", range(0, SEEDS, BLOCK))
def test_what_was_written_is_written_again(worlds: list[World], first: int) -> None:
    found: Counter[str] = Counter()
    for seed in range(first, first + BLOCK):
        simulate(schedule_of(seed))
        for replayed in replays_of(worlds.pop()):
            assert replayed.divergence is None, f"seed {seed}: {replayed}"
            assert not replayed.cannot or replayed.cannot.startswith(EXPLAINED), f"seed {seed}: {replayed.cannot}"
            assert replayed.cannot or replayed.same == replayed.events
            found["cannot" if replayed.cannot else "same"] += 1
    assert found["same"] > 2 * BLOCK
    assert found["cannot"] <= BLOCK / 20
