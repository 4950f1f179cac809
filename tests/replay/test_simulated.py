"""Whatever becomes of runs in the simulation, with crashes around any write, people who meddle, approvals and
accounts: the code that wrote a journal writes it again, and a fork of any step stands where the run stood."""

import asyncio
import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from treadle.core.fold import fold, fold_all
from treadle.core.fork import make_fork
from treadle.core.state import RunState, new_state
from treadle.domain.events import LlmRequest, RunQueued
from treadle.operations.replay_service import read_recorded_run
from treadle.ports.tool import Toolbox
from treadle.replay.recording import Recorded
from treadle.replay.replay import replay
from treadle.testing.simulation import scenario
from treadle.testing.simulation.__main__ import schedule_of
from treadle.testing.simulation.scenario import simulate
from treadle.testing.simulation.world import World

ODD = (138, 231, 343, 467, 505, 518, 1574, 1974, 2210, 2824)
"""A summary whose last piece stays empty; a call that its deadline stops as the run is cancelled; a message that is
read while a model replies; arguments that a reviewer edits; a shortage that ends the run once its children have
stopped; child runs that begin late; a deadline that stops a reply before a message is read; a retry after a
compaction; results of child runs that a worker learned of one by one; a recovered run with calls of a client."""
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


def records_of(world: World) -> tuple[list[Recorded], Toolbox]:
    process = world.start(lambda operation: None, sole=True)

    async def gathered() -> list[Recorded]:
        store, sessions, approvals = process.store, process.deps.session.sessions, process.deps.tools.approvals
        runs = await store.find(limit=100)
        return [await read_recorded_run(run.origin.run_id, store, sessions, approvals) for run in runs]

    return asyncio.run(gathered()), process.deps.tools.tools


def forks_of(record: Recorded) -> Iterator[tuple[RunState, RunState]]:
    """The run where it asked a model, for each of its steps; and a fork that stands there."""
    requests = {event.data.step: event for event in record.events if isinstance(event.data, LlmRequest)}
    for asked in requests.values():
        assert isinstance(asked.data, LlmRequest)
        before = record.events[: asked.sequence]
        state = fold_all(new_state(record.origin, record.history), before)
        fork = new_state(record.origin, ())
        fold(fork, RunQueued(state.agent, before=tuple(state.transcript.messages)), 1, 0.0)
        fold(fork, make_fork(state, before, asked.data), 2, 0.0)
        yield state, fork


def summarize_state(state: RunState) -> tuple[object, ...]:
    """What the guards will judge by, and what the model is shown."""
    counted = (
        state.turn.answer_so_far,
        state.guards.continuations,
        state.guards.empty_turns,
        state.guards.rejected_outputs,
    )
    claims, recovery = (state.guards.phantom_claims, state.guards.claimed_answer), state.guards.recovery
    stuck = (recovery.quiet_steps, recovery.stage, recovery.refused_tool, recovery.detected_at)
    return state.ledger, tuple(state.transcript.messages), state.submitted_text, counted, claims, stuck


@pytest.mark.parametrize("seeds", [range(20), range(20, 40), ODD], ids=str)
def test_replays_write_the_same_events_and_forks_have_the_same_state(
    worlds: list[World], seeds: Sequence[int]
) -> None:
    found: Counter[str] = Counter()
    for seed in seeds:
        simulate(schedule_of(seed))
        records, tools = records_of(worlds.pop())
        for record in records:
            for there, fork in forks_of(record):
                found["forks"] += 1
                assert summarize_state(fork) == summarize_state(there), f"seed {seed}: {record.origin.run_id}"
            replayed = replay(record, tools)
            assert replayed.divergence is None, f"seed {seed}: {replayed}"
            assert not replayed.cannot or replayed.cannot.startswith(EXPLAINED), f"seed {seed}: {replayed.cannot}"
            assert replayed.cannot or replayed.same == replayed.events
            found["cannot" if replayed.cannot else "same"] += 1
    assert found["same"] > 2 * len(seeds)
    assert found["forks"] > 2 * len(seeds)
    assert found["cannot"] <= 1
