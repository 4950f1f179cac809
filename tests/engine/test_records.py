"""The records of a run: every step with its usage, and totals that match those of the run."""

from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import treadle
from tests.engine.running import Gate, agent, in_virtual_time, journal, opened, until, virtually
from tests.engine.test_costs import priced
from treadle.domain.envelope import Event
from treadle.domain.events import RunEnd
from treadle.domain.runs import Metrics, Usage
from treadle.operations.run_records import CallRecord, build_run_steps, compute_totals
from treadle.testing.models import ScriptedFailure, ScriptedModel, ScriptStep, Silence, ask, call, say


@treadle.tool(effect="read", repeatable=True)
async def look(place: str) -> str:
    """Look somewhere."""
    if place == "nowhere":
        raise treadle.ToolError("there is nothing")
    return f"nothing in {place}"


def assert_adds_up(events: list[Event]) -> Metrics:
    """The steps and summaries add up to what the run itself has counted, which is another's work."""
    end = events[-1].data
    assert isinstance(end, RunEnd)
    records = build_run_steps(events)
    assert records.metrics == end.metrics
    summed = compute_totals(records.steps, records.summaries, end.metrics.duration_ms)
    assert (summed.cost, summed.credits) == pytest.approx((end.metrics.cost, end.metrics.credits))
    rounded = msgspec.structs.replace(summed, cost=end.metrics.cost, credits=end.metrics.credits)
    assert rounded == end.metrics
    return end.metrics


async def test_a_step_record_has_model_reasoning_usage_and_calls(tmp_path: Path) -> None:
    model = ScriptedModel(
        ScriptedFailure("overloaded", "busy", True, retry_after=0.0, usage=Usage(7, 1)),
        ask(
            call("look", "c1", place="hall"),
            call("look", "c2", place="nowhere"),
            call("make_up", "c3"),
            text="Let me look.",
            thinking="Where could it be?",
            usage=Usage(1000, 100, 400, 50),
        ),
        say("It is gone.", usage=Usage(2000, 10, 1500)),
    )

    async with opened(priced(tmp_path), model) as engine:
        result = await engine.run(agent(tools=[look]), "go")
        events = await journal(engine, result.run_id)
    first, second = build_run_steps(events).steps
    assert (first.number, first.provider, first.model, first.stop) == (1, "scripted", "x", "tool_use")
    assert (first.reasoning, first.text) == ("Where could it be?", "Let me look.")
    assert (first.attempts, first.is_over) == (2, True)
    [failure] = first.failures
    assert (failure.attempt, failure.kind, failure.message) == (1, "overloaded", "busy")
    used = first.used
    assert (used.input_tokens, used.output_tokens, used.cache_read_tokens, used.cache_write_tokens) == (
        1007, 101, 400, 50,
    )  # fmt: skip
    found, failed, unknown = first.calls
    assert found == CallRecord(
        call_id="c1",
        tool="look",
        input='{"place":"hall"}',
        status="ok",
        output="nothing in hall",
        duration_ms=found.duration_ms,
        attempts=1,
    )
    assert (failed.status, failed.attempts, "there is nothing" in failed.output) == ("failed", 1, True)
    assert (unknown.status, unknown.attempts, unknown.tool) == ("unknown_tool", 0, "make_up")
    assert (second.text, second.calls, second.first_token_ms) == ("It is gone.", (), second.first_token_ms)
    metrics = assert_adds_up(events)
    records = build_run_steps(events)
    assert records.cache_hit_rate == metrics.cache_hit_rate == pytest.approx(1900 / 3007)
    assert records.overhead_ms == metrics.overhead_ms


async def test_the_record_of_a_run_in_progress_is_partial(tmp_path: Path) -> None:
    gate = Gate()

    @treadle.tool
    async def wait() -> str:
        await gate.pass_through()
        return "waited"

    async with opened(
        tmp_path, ScriptedModel(ask(call("wait", "c1"), call("look", "c2", place="x")), say("done"))
    ) as engine:
        run_id = await engine.submit(agent(tools=[wait, look]), "go")
        await gate.reached.wait()
        stored = [event async for event in engine.service.read_stored(run_id)]
        now = stored[-1].timestamp + 60
        [step] = build_run_steps(stored, now).steps
        assert (step.is_over, [each.status for each in step.calls]) == (False, ["running", "asked"])
        assert step.duration_ms >= 60_000
        records = build_run_steps(stored, now)
        assert (records.metrics.steps, records.metrics.actions, records.metrics.model_calls) == (1, 1, 1)
        assert records.metrics.duration_ms >= 60_000
        gate.open.set()
        await engine.wait(run_id)
        assert_adds_up(await journal(engine, run_id))


def test_a_run_that_has_not_started_has_no_steps() -> None:
    assert build_run_steps([]).steps == ()
    assert build_run_steps([]).metrics == Metrics()


async def test_a_reply_that_a_crash_hid_counts_as_an_attempt_and_a_call_that_ran_twice_as_two(
    tmp_path: Path,
) -> None:
    gate = Gate()

    @treadle.tool(repeatable=True)
    async def wait() -> str:
        if not gate.open.is_set():
            await gate.pass_through()
        return "waited"

    async with opened(tmp_path, ScriptedModel(Silence("half"))) as engine:
        run_id = await engine.submit(agent(tools=[wait]), "go")
        await until(engine, run_id, "token")
    async with opened(tmp_path, ScriptedModel(ask(call("wait", "c1")))) as engine:
        engine.add_tools(wait)
        await gate.reached.wait()
    gate.open.set()
    async with opened(tmp_path, ScriptedModel(say("done"))) as engine:
        engine.add_tools(wait)
        await engine.wait(run_id)
        events = await journal(engine, run_id)
    first, _ = build_run_steps(events).steps
    assert (first.attempts, first.repeated_calls) == (2, 1)
    assert [each.attempts for each in first.calls] == [2]
    assert_adds_up(events)


async def test_a_summary_between_steps_has_its_own_record(tmp_path: Path) -> None:
    long = "words and more words that say nothing at all, " * 12

    replies = [say(f"{long}{number}", usage=Usage(50, 50)) for number in range(4)]
    summary = say("## Goal\nTo talk.", usage=Usage(300, 30))
    async with opened(tmp_path, ScriptedModel(*replies, summary)) as engine:
        for number in range(4):
            await engine.run(agent(), f"message {number}", session="ses_1")
        result = await engine.run(agent(), "/compact", session="ses_1")
        events = await journal(engine, result.run_id)
    records = build_run_steps(events)
    assert records.steps == ()
    [summed] = records.summaries
    assert (summed.before_step, summed.is_done, summed.used.input_tokens) == (1, True, 300)
    assert_adds_up(events)


# ── Any run ──

usages = st.builds(Usage, st.integers(0, 5000), st.integers(0, 500), st.integers(0, 100), st.integers(0, 100))
places = st.lists(st.sampled_from(["hall", "attic", "nowhere"]), min_size=1, max_size=3)


@st.composite
def scripts(draw: st.DrawFn) -> list[ScriptStep]:
    steps: list[ScriptStep] = []
    for number in range(draw(st.integers(0, 6))):
        if draw(st.booleans()):
            steps.append(ScriptedFailure("overloaded", "busy", True, retry_after=0.0, usage=draw(usages)))
        calls = [call("look", f"c{number}_{at}", place=place) for at, place in enumerate(draw(places))]
        steps.append(ask(*calls, text=draw(st.sampled_from(["", "so"])), usage=draw(usages)))
    steps.append(
        draw(
            st.sampled_from(
                [say("done"), ScriptedFailure("invalid_request", "no", False), ScriptedFailure("auth", "no", False)]
            )
        )
    )
    return steps


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(scripts())
def test_the_steps_of_a_run_add_up_to_its_usage(script: list[ScriptStep]) -> None:
    async def scenario() -> list[Event]:
        async with in_virtual_time(ScriptedModel(*script, *[say("enough")] * 20)) as engine:
            result = await engine.run(agent(tools=[look], limits={"max_steps": 4}), "go")
            return await journal(engine, result.run_id)

    assert_adds_up(virtually(scenario()))
