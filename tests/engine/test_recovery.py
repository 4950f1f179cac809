"""An engine that dies during a run, and one that resumes its runs."""

import asyncio
import time
from pathlib import Path
from random import Random

import pytest

import treadle
from tests.engine.running import Gate, agent, in_a_world, in_virtual_time, journal, opened, types, until, virtually
from tests.observed import all_told
from treadle.api.engine import create_engine
from treadle.core.tools.plan import OUTCOME_UNKNOWN
from treadle.domain.agents import AgentSpec
from treadle.domain.events import LlmRequest, LlmRetry, RunWaiting, ToolCallStart
from treadle.domain.messages import ToolResult, user
from treadle.operations.submissions import Submission
from treadle.ports.model import ModelRequest
from treadle.system.clock import SteadyClock
from treadle.testing.models import ScriptedFailure, ScriptedModel, ScriptStep, Silence, ask, call, say
from treadle.testing.simulation.world import World


async def test_a_run_interrupted_in_a_model_call_repeats_it_once_and_records_that(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(Silence("half"))) as engine:
        run_id = await engine.submit(agent(), "go")
        await until(engine, run_id, "token")
    model = ScriptedModel(say("whole"))
    async with opened(tmp_path, model) as engine:
        result = await engine.wait(run_id)
        requests = [event.data for event in await journal(engine, run_id) if isinstance(event.data, LlmRequest)]
    assert (result.text, result.metrics.model_calls, result.metrics.repeated_calls) == ("whole", 2, 1)
    assert [(request.attempt, request.repeats_lost) for request in requests] == [(1, False), (2, True)]
    assert [message.text for message in model.requests[0].conversation.messages] == ["go"]


@pytest.mark.parametrize("repeatable", [True, False])
async def test_a_run_interrupted_in_a_tool_repeats_it_only_if_allowed(tmp_path: Path, repeatable: bool) -> None:
    gate, ran = Gate(), list[str]()

    @treadle.tool(repeatable=repeatable)
    async def act(context: treadle.ToolContext) -> str:
        ran.append(context.idempotency_key)
        if len(ran) == 1:
            await gate.pass_through()
        return "acted"

    async with opened(tmp_path, ScriptedModel(ask(call("act", "c1")))) as engine:
        run_id = await engine.submit(agent(tools=[act]), "go")
        await gate.reached.wait()
    model = ScriptedModel(say("done"))
    async with opened(tmp_path, model) as engine:
        engine.add_tools(act)
        result = await engine.wait(run_id)
        starts = [event.data for event in await journal(engine, run_id) if isinstance(event.data, ToolCallStart)]
    assert result.text == "done"
    [answer] = all_told(model.requests[0].conversation.messages[-1].parts)
    if repeatable:
        assert answer == ToolResult("c1", "acted")
        assert ran == [f"{run_id}/c1"] * 2
        assert [start.attempt for start in starts] == [1, 2]
    else:
        assert answer == ToolResult("c1", OUTCOME_UNKNOWN, is_error=True)
        assert len(ran) == len(starts) == 1


async def test_finished_calls_are_kept_after_a_crash(tmp_path: Path) -> None:
    gate, ran = Gate(), list[str]()

    @treadle.tool(effect="read")
    async def look(name: str) -> str:
        ran.append(name)
        if name == "slow":
            await gate.pass_through()
        return f"seen {name}"

    calls = tuple(call("look", name, name=name) for name in ("a", "slow", "b"))
    async with opened(tmp_path, ScriptedModel(ask(*calls))) as engine:
        run_id = await engine.submit(agent(tools=[look]), "go")
        first = await until(engine, run_id, "tool_call_end")
        await until(engine, run_id, "tool_call_end", after=first.sequence)
    model = ScriptedModel(say("done"))
    async with opened(tmp_path, model) as engine:
        engine.add_tools(look)
        await engine.wait(run_id)
    assert sorted(ran) == ["a", "b", "slow"]
    assert all_told(model.requests[0].conversation.messages[-1].parts) == (
        ToolResult("a", "seen a"),
        ToolResult("slow", OUTCOME_UNKNOWN, is_error=True),
        ToolResult("b", "seen b"),
    )


# ── What the new engine lacks ──


async def test_a_run_with_a_missing_tool_waits_for_it(tmp_path: Path) -> None:
    gate = Gate()

    @treadle.tool(repeatable=True)
    async def act() -> str:
        await gate.pass_through()
        return "acted"

    async with opened(tmp_path, ScriptedModel(ask(call("act", "c1")))) as engine:
        run_id = await engine.submit(agent(tools=[act]), "go")
        await gate.reached.wait()
    gate.open.set()
    async with opened(tmp_path, ScriptedModel(say("done"))) as engine:
        waiting = await until(engine, run_id, "run_waiting")
        assert isinstance(waiting.data, RunWaiting)
        assert waiting.data.reason == "unavailable"
        assert "`act`" in waiting.data.detail
        assert (await engine.service.run(run_id)).waiting_for == "unavailable"
        engine.add_tools(act)
        assert (await engine.wait(run_id)).text == "done"


async def test_a_run_with_a_missing_model_waits_for_it(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel()) as engine:
        engine.add_model("rare", ScriptedModel(Silence("half")))
        run_id = await engine.submit(agent(model="rare/x"), "go")
        await until(engine, run_id, "token")
    async with opened(tmp_path, ScriptedModel()) as engine:
        await until(engine, run_id, "run_waiting")
    async with opened(tmp_path, ScriptedModel()) as engine:
        engine.add_model("rare", ScriptedModel(say("whole")))
        assert (await engine.wait(run_id)).text == "whole"
        assert types(await journal(engine, run_id)).count("run_waiting") == 1


async def test_a_parked_run_can_be_cancelled(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel()) as engine:
        engine.add_model("rare", ScriptedModel(Silence("half")))
        run_id = await engine.submit(agent(model="rare/x"), "go")
        await until(engine, run_id, "token")
    async with opened(tmp_path, ScriptedModel()) as engine:
        await until(engine, run_id, "run_waiting")
        await engine.cancel(run_id)
        assert (await engine.wait(run_id)).outcome == "cancelled"


def make_later_clock(hours: float) -> SteadyClock:
    """The clock of a process that is started so much later."""
    return SteadyClock(lambda: time.time() + 3600 * hours)


async def test_a_parked_run_still_has_its_deadline(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel()) as engine:
        engine.add_model("rare", ScriptedModel(Silence("half")))
        run_id = await engine.submit(agent(model="rare/x", limits={"deadline": 3600}), "go")
        await until(engine, run_id, "token")
    async with opened(tmp_path, ScriptedModel(), clock=make_later_clock(0.5)) as engine:
        await until(engine, run_id, "run_waiting")
    async with opened(tmp_path, ScriptedModel(), clock=make_later_clock(1)) as engine:
        assert (await engine.wait(run_id)).outcome == "deadline"


# ── Retries ──


def test_a_failed_call_is_retried_with_a_wait_on_record() -> None:
    async def scenario() -> None:
        model = ScriptedModel(ScriptedFailure(text="half a"), ScriptedFailure(retry_after=300.0), say("at last"))
        async with in_virtual_time(model) as engine:
            result = await engine.run(agent(retry={"schedule": "linear"}), "go")
            events = await journal(engine, result.run_id)
        assert (result.text, result.metrics.model_calls, result.metrics.steps) == ("at last", 3, 1)
        told = types(events)
        assert told[4 : told.index("llm_response")] == [
            "step_start", "llm_request", "llm_error", "llm_retry", "llm_request", "llm_error", "llm_retry",
            "run_waiting", "llm_request",
        ]  # fmt: skip
        waits = [event.data for event in events if isinstance(event.data, LlmRetry)]
        assert [wait.delay_ms for wait in waits] == [0, 300_000]
        waiting = next(event.data for event in events if isinstance(event.data, RunWaiting))
        assert (waiting.reason, waiting.wake_at) == ("retry", waits[1].wake_at)
        asked = [event.timestamp for event in events if event.type == "llm_request"]
        assert asked[2] >= waits[1].wake_at
        assert [len(request.conversation.messages) for request in model.requests] == [1, 1, 1]

    virtually(scenario())


def test_a_run_ends_after_its_last_retry() -> None:
    async def scenario() -> treadle.Result:
        async with in_virtual_time(ScriptedModel(*[ScriptedFailure()] * 4)) as engine:
            return await engine.run(agent(), "go")

    result = virtually(scenario())
    assert (result.outcome, result.metrics.model_calls) == ("model_error", 4)
    assert "overloaded" in result.reason
    assert "tried 4 times" in result.reason


async def test_a_wait_survives_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(ScriptedFailure(retry_after=3600.0))) as engine:
        run_id = await engine.submit(agent(), "go")
        await until(engine, run_id, "run_waiting")
        wake_at = (await engine.service.run(run_id)).wake_at
    async with opened(tmp_path, ScriptedModel(), clock=make_later_clock(0.5)) as engine:
        assert (await engine.service.run(run_id)).status == "waiting"
    async with opened(tmp_path, ScriptedModel(say("later")), clock=make_later_clock(1)) as engine:
        assert (await engine.wait(run_id)).text == "later"
        asked = [event for event in await journal(engine, run_id) if event.type == "llm_request"]
    assert wake_at is not None
    assert asked[-1].timestamp >= wake_at


class SlowWall:
    """A wall clock at half the speed of the event loop, like one that is being corrected."""

    def now(self) -> float:
        return 1_800_000_000 + asyncio.get_running_loop().time() / 2

    def monotonic(self) -> float:
        return asyncio.get_running_loop().time()


def test_a_slow_wall_clock_does_not_advance_the_deadline() -> None:
    async def scenario() -> None:
        with ScriptedModel(Silence("half")) as model:
            engine = create_engine("sqlite:///:memory:", clock=SlowWall())
            engine.add_model("scripted", model)
            async with engine:
                result = await engine.run(agent(limits={"deadline": 10}), "go")
        assert result.outcome == "deadline"
        assert result.metrics.model_calls == 1
        assert result.metrics.duration_ms >= 10_000

    virtually(scenario())


# ── Two processes ──


def test_a_worker_stalled_past_its_lease_is_fenced() -> None:
    async def scenario() -> None:
        def answer(request: ModelRequest, world: World) -> ScriptStep:
            if len(world.alive()) == 1:
                first.journal.stall(30)  # it stands still while the model answers
            return say("done")

        world = World(Random(3), answer)
        first = world.start(lambda operation: None, sole=False)
        await first.spawn(first.start())
        submission = Submission(AgentSpec("hero", "simulated", tools=("*",)), user("go"))
        ticket = await first.spawn(first.service.submit(submission))
        with first.hub.subscribe(ticket.run_id) as heard:
            told: set[str] = set()

            async def listen() -> None:
                while (events := await heard.take()) is not None:
                    told.update([event.type for event in events])

            listening = first.spawn(listen())
            await asyncio.sleep(5)
            second = world.start(lambda operation: None, sole=False)
            await second.spawn(second.start())
            _, end = await second.spawn(second.service.wait(ticket.run_id))
            await asyncio.sleep(60)
            listening.cancel()
        assert end.text == "done"
        assert "run_fenced" in told
        events = await second.spawn(second.store.read(ticket.run_id))
        assert types(events).count("run_recovered") == types(events).count("run_end") == 1

    in_a_world(scenario())
