"""One run that kills its process, among others: only that run is quarantined, and the others complete."""

import asyncio
from collections import Counter
from itertools import count
from random import Random

import pytest

from tests.domain.test_envelope import ORIGIN
from tests.engine.running import in_a_world, types, virtually
from treadle.core.state import new_state
from treadle.core.suspicion import CULPRIT_DEATHS, Suspect
from treadle.domain.agents import AgentSpec
from treadle.domain.events import TrialStarted
from treadle.domain.ids import RunId
from treadle.domain.messages import user
from treadle.domain.runs import OutcomeKind
from treadle.engine.isolation import (
    ADMISSION_SECONDS,
    HOLD_SECONDS,
    SHARED_TRIAL_SECONDS,
    STOP_SECONDS,
    TRIAL_SECONDS,
    Isolation,
)
from treadle.operations.submissions import Submission
from treadle.ports.model import ModelRequest
from treadle.testing.models import ScriptStep, ask, call, say
from treadle.testing.simulation.world import PROCESS, SimulatedProcess, World

AGENT = AgentSpec("hero", "simulated", tools=("*",))
HOUR = 3600.0


def policy(request: ModelRequest, world: World) -> ScriptStep:
    """Look twice, then answer; a run that was told to die kills its process with its second model call."""
    del world
    messages = request.conversation.messages
    turns = sum(message.role == "assistant" for message in messages)
    if "die" in messages[0].text and turns == 1:
        process = PROCESS.get()
        assert process is not None
        process.journal.die()
    return say("fine") if turns == 2 else ask(call("look", f"c{turns}", n=turns))


async def start(world: World, sole: bool = True) -> SimulatedProcess:
    process = world.start(lambda operation: None, sole)
    await process.spawn(process.start())
    return process


async def submit(process: SimulatedProcess, messages: list[str]) -> list[RunId]:
    return [
        (await process.spawn(process.service.submit(Submission(AGENT, user(message))))).run_id
        for message in messages
    ]


async def outcomes(process: SimulatedProcess, runs: list[RunId]) -> list[OutcomeKind | None]:
    return [(await process.store.record(run_id)).outcome for run_id in runs]


async def revive(world: World, process: SimulatedProcess, runs: list[RunId], most: int) -> SimulatedProcess:
    """Start another process whenever one has died, until all runs have ended."""
    for _ in range(most):
        async with asyncio.timeout(HOUR):
            while not process.journal.dead and None in await outcomes(process, runs):  # noqa: ASYNC110
                await asyncio.sleep(0.1)
        if not process.journal.dead:
            return process
        process = await start(world)
    raise AssertionError(f"after {most} processes: {await outcomes(process, runs)}")


@pytest.mark.parametrize("seed", range(4))
def test_only_the_run_that_kills_its_process_is_quarantined(seed: int) -> None:
    async def scenario() -> None:
        world = World(Random(seed), policy)
        process = await start(world)
        runs = await submit(process, ["go"] * 5 + ["die"])
        process = await revive(world, process, runs, most=9)
        assert await outcomes(process, runs) == ["completed"] * 5 + ["quarantined"]
        deaths = types(await process.store.read(runs[5])).count("run_recovered")
        assert deaths == len(world.processes) - 1 <= 8

    in_a_world(scenario(), seed)


@pytest.mark.parametrize("seed", range(4))
def test_killing_processes_from_outside_quarantines_no_run(seed: int) -> None:
    """Forty processes are killed within moments, so that many runs are suspects again and again."""

    async def scenario() -> None:
        world, chance = World(Random(seed), policy), Random(seed)
        process = await start(world)
        runs = await submit(process, ["go"] * 6 + ["die"])
        for _ in range(40):
            await asyncio.sleep(chance.random() * 3)
            process.journal.die()
            process = await start(world)
        process = await revive(world, process, runs, most=20)
        assert await outcomes(process, runs) == ["completed"] * 6 + ["quarantined"]

    in_a_world(scenario(), seed)


def test_deaths_of_a_trial_narrow_the_search_and_members_are_named_in_the_journal() -> None:
    """Of 16 runs, one kills its process in its second model call. The others die with it only in shared trials."""

    async def scenario() -> None:
        world = World(Random(5), policy)
        process = await start(world)
        runs = await submit(process, ["go"] * 15 + ["die"])
        process = await revive(world, process, runs, most=14)
        assert await outcomes(process, runs) == ["completed"] * 15 + ["quarantined"]
        journals = [await process.store.read(run_id) for run_id in runs]
        trials = [[event.data for event in each if isinstance(event.data, TrialStarted)] for each in journals]
        named = Counter(trial.trial for each in trials for trial in each)
        sizes = {trial.trial: trial.members for each in trials for trial in each}
        assert named == sizes, "each member of a trial names it"
        assert [trial.members for trial in trials[15]][-CULPRIT_DEATHS:] == [1] * CULPRIT_DEATHS
        assert max(sizes.values()) <= 8, "at most half of the suspects, or the rest after a trial that passed"
        assert types(journals[15]).count("run_recovered") <= 10

    in_a_world(scenario(), 5)


def test_two_deadly_runs_are_found() -> None:
    async def scenario() -> None:
        world = World(Random(3), policy)
        process = await start(world)
        runs = await submit(process, ["go"] * 10 + ["die"] * 2)
        process = await revive(world, process, runs, most=18)
        assert await outcomes(process, runs) == ["completed"] * 10 + ["quarantined"] * 2

    in_a_world(scenario(), 3)


def make_suspects(count: int, deaths_alone: int = 0) -> list[Suspect]:
    return [Suspect(RunId(f"run_{deaths_alone}_{number}"), deaths_alone) for number in range(count)]


class TrialRecorder:
    """Suspects that execute for some time, and who executed together."""

    def __init__(self, seconds: float) -> None:
        self.isolation, self.seconds = Isolation(), seconds
        self.members: dict[str, list[Suspect]] = {}
        self.sizes: list[int] = []
        self.executing = set[Suspect]()
        self._ids = (f"trl_{number}" for number in count())

    async def execute(self, suspect: Suspect) -> None:
        async with self.isolation.join_trial(suspect, lambda prefix: next(self._ids)) as slot:
            assert slot.trial is not None
            members = self.members.setdefault(slot.trial.trial, [])
            if not members:
                self.sizes.append(slot.trial.members)
            members.append(suspect)
            self.executing.add(suspect)
            await asyncio.sleep(self.seconds)
            self.executing.discard(suspect)

    async def execute_together(self) -> float:
        """Execute one other run, and return for how long it waited."""
        began = asyncio.get_running_loop().time()
        async with self.isolation.share():
            return asyncio.get_running_loop().time() - began


@pytest.mark.parametrize(("suspects", "sizes"), [(200, [100, 100]), (2, [1, 1]), (1, [1]), (3, [2, 1])])
def test_half_of_the_suspects_execute_in_the_first_trial_and_the_others_in_the_second(
    suspects: int, sizes: list[int]
) -> None:
    async def scenario() -> None:
        recorder = TrialRecorder(seconds=3)
        await asyncio.gather(*map(recorder.execute, make_suspects(suspects)))
        assert recorder.sizes == sizes
        assert [len(members) for members in recorder.members.values()] == sizes

    virtually(scenario())


def test_runs_that_died_alone_are_tried_last_one_at_a_time() -> None:
    async def scenario() -> None:
        recorder = TrialRecorder(seconds=3)
        await asyncio.gather(
            *map(recorder.execute, [*make_suspects(2, 3), *make_suspects(1, 1), *make_suspects(4)])
        )
        order = [[suspect.deaths_alone for suspect in members] for members in recorder.members.values()]
        assert order == [[0, 0], [0, 0], [1], [3], [3]]

    virtually(scenario())


@pytest.mark.parametrize(("suspects", "limit"), [(1, TRIAL_SECONDS), (200, SHARED_TRIAL_SECONDS)])
def test_other_runs_wait_at_most_for_the_current_trial(suspects: int, limit: float) -> None:
    """The suspects neither finish nor die."""

    async def scenario() -> None:
        recorder = TrialRecorder(seconds=HOUR)
        tasks = [asyncio.ensure_future(recorder.execute(each)) for each in make_suspects(suspects)]
        await asyncio.sleep(0.3)
        assert recorder.executing
        assert 0 < await recorder.execute_together() <= limit
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
        assert await recorder.execute_together() == 0

    virtually(scenario())


def test_waiting_runs_are_admitted_between_two_trials() -> None:
    async def scenario() -> None:
        recorder = TrialRecorder(seconds=4)
        tasks = [asyncio.ensure_future(recorder.execute(each)) for each in make_suspects(5, 1)]
        await asyncio.sleep(HOLD_SECONDS + 0.5)
        assert await recorder.execute_together() <= 4
        assert len(recorder.sizes) <= 2, "only the current trial has passed"
        await asyncio.gather(*tasks)

    virtually(scenario())


def test_trial_of_one_waits_until_other_runs_stop_but_not_for_ever() -> None:
    async def scenario() -> None:
        recorder, loop = TrialRecorder(seconds=1), asyncio.get_running_loop()
        async with recorder.isolation.share() as slot:
            suspect = asyncio.ensure_future(recorder.execute(make_suspects(1)[0]))
            await asyncio.sleep(1)
            assert not slot.may_continue(new_state(ORIGIN))
            assert not recorder.executing
            began = loop.time()
            await suspect
            assert 0 < loop.time() - began <= STOP_SECONDS + 1

    virtually(scenario())


@pytest.mark.parametrize(("seconds", "most"), [(0.02, 1), (3, 8)])
def test_members_of_a_trial_start_one_after_the_other(seconds: float, most: int) -> None:
    """If each makes progress at once, the death of a worker meets one of them. A slow one delays the next for its
    head start."""

    async def scenario() -> None:
        recorder, loop = TrialRecorder(seconds), asyncio.get_running_loop()
        tasks = [asyncio.ensure_future(recorder.execute(each)) for each in make_suspects(16)]
        together, passed = 0, asyncio.gather(*tasks)
        while not passed.done():
            await asyncio.sleep(0.001)
            together = max(together, len(recorder.executing))
        assert together == most
        assert recorder.sizes == [8, 8]
        assert loop.time() < 2 * (seconds * 8 / most + ADMISSION_SECONDS)

    virtually(scenario())


def test_suspect_that_is_cancelled_while_it_waits_does_not_hold_up_its_trial() -> None:
    async def scenario() -> None:
        recorder, loop = TrialRecorder(seconds=3), asyncio.get_running_loop()
        tasks = [asyncio.ensure_future(recorder.execute(each)) for each in make_suspects(4)]
        await asyncio.sleep(0.1)
        tasks[0].cancel()
        await asyncio.wait(tasks)
        assert loop.time() < 10

    virtually(scenario())
