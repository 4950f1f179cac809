"""Requests that a provider refuses: what is tried before a run fails, and what the user sees."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from tests.engine.running import agent, in_virtual_time, journal, opened, until, virtually
from tests.engine.test_compaction import UNCOUNTED, Recorder, is_summary, look
from treadle.domain import events as e
from treadle.domain.agents import Limits
from treadle.domain.errors import UsageError
from treadle.models.breaker import MIN_CALLS, CircuitBreaker
from treadle.ports.model import ModelRequest
from treadle.testing.models import ScriptedFailure, ScriptedModel, ScriptStep, ask, call, say

UNCLEAR = ScriptedFailure("invalid_request", "Provider returned error.", False, status=400, unclear=True)


def of(kind: Any, events: Any) -> list[Any]:
    return [event.data for event in events if isinstance(event.data, kind)]


def refuses_from(step: int, accepts_shorter: bool) -> Recorder:
    """Looks around, and then is refused until it is asked with less."""

    def answer(request: ModelRequest, model: Recorder) -> ScriptStep:
        if is_summary(request):
            return say("## Done\nlooked", usage=UNCOUNTED)
        if len(model.asked) < step:
            return ask(call("look", f"c{len(model.asked)}", at=len(model.asked)), usage=UNCOUNTED)
        if accepts_shorter and len(model.asked[-1]) < len(model.asked[step - 1]):
            return say("done", usage=UNCOUNTED)
        return UNCLEAR

    return Recorder(answer)


@pytest.mark.parametrize("accepts_shorter", [True, False])
async def test_an_unclear_refusal_of_a_large_conversation_is_retried_once_with_a_shorter_one(
    tmp_path: Path, accepts_shorter: bool
) -> None:
    model = refuses_from(7, accepts_shorter)

    async with opened(tmp_path, model) as engine:
        result = await engine.run(agent(tools=[look], limits=Limits(context_window=4000)), "Look around.")
        events = await journal(engine, result.run_id)
    assert len(of(e.ContextCompacted, events)) == 1
    failures = of(e.LlmError, events)
    assert [each.guessed for each in failures] == ([True] if accepts_shorter else [True, False])
    if accepts_shorter:
        assert (result.outcome, result.text) == ("completed", "done")
    else:
        assert result.outcome == "model_error", "it was not said that it is too long"
        assert "Provider returned error" in result.reason
        assert "/compact" in result.next
        assert "/reset" in result.next


async def test_an_unclear_refusal_of_a_small_conversation_ends_the_run(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(UNCLEAR, say("hello again"))) as engine:
        first = await engine.run(agent(), "Hello.")
        events = await journal(engine, first.run_id)
        second = await engine.run(agent(), "Hello?", session=first.session_id)
    assert (first.outcome, second.outcome) == ("model_error", "completed")
    assert not of(e.CompactionStarted, events)
    assert not of(e.LlmError, events)[0].compact


async def test_a_clear_refusal_is_not_an_overflow(tmp_path: Path) -> None:
    def answer(request: ModelRequest, model: Recorder) -> ScriptStep:
        if len(model.asked) < 7:
            return ask(call("look", f"c{len(model.asked)}", at=len(model.asked)), usage=UNCOUNTED)
        return ScriptedFailure("invalid_request", "Unsupported parameter: temperature.", False, status=400)

    async with opened(tmp_path, Recorder(answer)) as engine:
        result = await engine.run(agent(tools=[look], limits=Limits(context_window=4000)), "Look around.")
        events = await journal(engine, result.run_id)
    assert result.outcome == "model_error"
    assert not of(e.CompactionStarted, events)


async def test_the_reply_limit_is_lowered_for_the_rest_of_the_run(tmp_path: Path) -> None:
    bounds: list[int | None] = []

    def answer(request: ModelRequest, model: Recorder) -> ScriptStep:
        bounds.append(request.settings.max_tokens)
        if len(bounds) == 1:
            return ScriptedFailure("invalid_request", "max_tokens is too large", False, longest_reply=8192)
        return ask(call("look", "c1", at=1), usage=UNCOUNTED) if len(bounds) == 2 else say("done", usage=UNCOUNTED)

    async with opened(tmp_path, Recorder(answer)) as engine:
        hero = agent(tools=[look], model_settings={"max_tokens": 20_000}, retry={"attempts": 0})
        result = await engine.run(hero, "Look around.")
    assert result.outcome == "completed"
    assert bounds == [20_000, 8192, 8192]


@pytest.mark.parametrize("kind", ["invalid_request", "overflow", "billing", "auth", "not_found"])
async def test_a_refused_request_never_opens_the_breaker(tmp_path: Path, kind: Any) -> None:
    calls = 2 * MIN_CALLS
    model = ScriptedModel(*[ScriptedFailure(kind, "no", False, status=400) for _ in range(calls)])

    async def scenario() -> None:
        async with opened(tmp_path, model) as engine:
            for _ in range(calls):
                result = await engine.run(agent(), "Hello.")
                assert not of(e.BreakerOpened, await journal(engine, result.run_id))

    await scenario()


def test_a_breaker_opens_only_on_failures_that_are_recorded() -> None:
    breaker = CircuitBreaker()
    assert [breaker.record(True, float(at)) for at in range(MIN_CALLS)][-1] == "opened"


# ── Waits ──────────────────────────────────────────────────────────────────────────────────────────


def test_a_wait_below_the_limit_parks_the_run_until_it_is_over() -> None:
    model = ScriptedModel(ScriptedFailure("rate_limited", "slow down", True, retry_after=3000.0), say("done"))

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        async with in_virtual_time(model) as engine:
            began = loop.time()
            run_id = await engine.submit(agent(), "go")
            waiting = await until(engine, run_id, "run_waiting")
            assert isinstance(waiting.data, e.RunWaiting)
            assert waiting.data.reason == "retry"
            assert waiting.data.wake_at == pytest.approx(waiting.timestamp + 3000, abs=1)
            assert waiting.data.detail.startswith("attempt 2 of the model call, at 2027-01-15 08:50:")
            result = await engine.wait(run_id)
        assert result.outcome == "completed"
        assert loop.time() - began == pytest.approx(3000, abs=5)

    virtually(scenario())


async def test_the_wake_up_time_survives_a_restart(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(ScriptedFailure(retry_after=2.0))) as engine:
        run_id = await engine.submit(agent(), "go")
        waiting = await until(engine, run_id, "run_waiting")
    async with opened(tmp_path, ScriptedModel(say("at last"))) as engine:
        result = await engine.wait(run_id)
        events = await journal(engine, run_id)
    assert (result.outcome, result.text) == ("completed", "at last")
    assert isinstance(waiting.data, e.RunWaiting)
    assert waiting.data.wake_at is not None
    request = [event for event in events if event.type == "llm_request"][-1]
    assert request.timestamp >= waiting.data.wake_at


async def test_a_longer_wait_ends_the_run_and_reports_the_time(tmp_path: Path) -> None:
    model = ScriptedModel(ScriptedFailure("rate_limited", "slow down.", True, retry_after=90.0), say("hello"))

    async with opened(tmp_path, model) as engine:
        hero = agent(retry={"longest_wait": "1m"})
        result = await engine.run(hero, "go")
        assert result.outcome == "model_error"
        assert "It asks to wait 2 min, until " in result.reason
        assert " UTC; retry.longest_wait of the agent allows 1 min." in result.reason
        assert (await engine.run(hero, "and now?", session=result.session_id)).text == "hello"


def test_longest_wait_must_be_a_duration() -> None:
    with pytest.raises(UsageError, match="not a duration"):
        agent(retry={"longest_wait": "soon"})
