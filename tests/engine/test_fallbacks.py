"""A fallback model takes over when a model fails or its breaker is open. No text is shown twice."""

import asyncio
from pathlib import Path

import pytest

import treadle
from tests.engine.running import agent, in_virtual_time, journal, opened, types, until, virtually
from treadle.api.engine import HostedEngine, create_engine
from treadle.config.home import Home
from treadle.core.retry import MAX_KEYS
from treadle.domain.errors import UsageError
from treadle.domain.events import (
    BreakerOpened,
    LlmError,
    LlmFallback,
    LlmRequest,
    LlmRetry,
    ModelResolved,
    RunEnd,
    RunWaiting,
)
from treadle.models.breaker import MIN_CALLS
from treadle.ports.model import Model
from treadle.testing.models import FunctionModel, ScriptedFailure, ScriptedModel, Silence, ask, call, say
from treadle.testing.time import LoopClock

REFUSED = ScriptedFailure("auth", "the key is wrong", retryable=False, next_model=True)
FALLBACKS = {"fallbacks": ["second/y", "third/z"]}


def add_fallbacks(engine: HostedEngine, second: Model, third: Model | None = None) -> None:
    engine.add_model("second", second)
    engine.add_model("third", third or ScriptedModel())


@treadle.tool(effect="read", repeatable=True)
async def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing in {place}"


async def test_the_next_model_takes_over_for_the_rest_of_the_run(tmp_path: Path) -> None:
    first, second = ScriptedModel(REFUSED), ScriptedModel(ask(call("look", place="hall")), say("done"))

    async with opened(tmp_path, first) as engine:
        add_fallbacks(engine, second)
        result = await engine.run(agent(tools=[look], **FALLBACKS), "go")
        events = [event.data for event in await journal(engine, result.run_id)]
    assert (result.outcome, result.text) == ("completed", "done")
    [fallback] = [data for data in events if isinstance(data, LlmFallback)]
    assert (fallback.provider, fallback.model, fallback.to) == ("scripted", "x", "second/y")
    assert "the key is wrong" in fallback.reason
    asked = [(data.provider, data.model, data.step) for data in events if isinstance(data, LlmRequest)]
    assert asked == [("scripted", "x", 1), ("second", "y", 1), ("second", "y", 2)]
    resolved = [(data.route, data.reason) for data in events if isinstance(data, ModelResolved)]
    assert [route for route, _ in resolved] == ["scripted/x", "second/y"]
    assert "a fallback" in resolved[1][1]


def test_retries_precede_fallbacks_and_each_model_has_its_own() -> None:
    busy = ScriptedFailure(next_model=True)
    first, second = ScriptedModel(*[busy] * 4), ScriptedModel(busy, say("done"))

    async def scenario() -> None:
        async with in_virtual_time(first) as engine:
            add_fallbacks(engine, second)
            result = await engine.run(agent(**FALLBACKS), "go")
            kinds = types(await journal(engine, result.run_id))
        assert result.text == "done"
        assert [kind for kind in kinds if kind in ("llm_error", "llm_retry", "llm_fallback")] == (
            ["llm_error", "llm_retry"] * 3 + ["llm_error", "llm_fallback", "llm_error", "llm_retry"]
        )

    virtually(scenario())


async def test_the_run_ends_with_the_last_error_when_no_fallback_is_left(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(REFUSED)) as engine:
        add_fallbacks(
            engine,
            ScriptedModel(REFUSED),
            ScriptedModel(ScriptedFailure("billing", "no money", False, next_model=True)),
        )
        result = await engine.run(agent(**FALLBACKS), "go")
    assert (result.outcome, result.status) == ("model_error", "failed")
    assert "no money" in result.reason


async def test_a_failure_that_no_other_model_would_fix_ends_the_run(tmp_path: Path) -> None:
    async with opened(
        tmp_path, ScriptedModel(ScriptedFailure("overflow", "too long", False, compact=True))
    ) as engine:
        add_fallbacks(engine, ScriptedModel())
        result = await engine.run(agent(**FALLBACKS), "go")
    assert (result.outcome, result.status) == ("context_overflow", "failed")


async def test_an_unavailable_fallback_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    async with opened(tmp_path, ScriptedModel(REFUSED)) as engine:
        engine.add_model("third", ScriptedModel(say("here")))
        result = await engine.run(agent(fallbacks=["openai/y", "third/z"]), "go")
        events = [event.data for event in await journal(engine, result.run_id)]
    assert result.text == "here"
    fallbacks = [data for data in events if isinstance(data, LlmFallback)]
    assert [data.to for data in fallbacks] == ["openai/y", "third/z"]
    assert "provider openai needs a key" in fallbacks[1].reason


def test_text_that_was_shown_before_a_fallback_is_void() -> None:
    first = ScriptedModel(ScriptedFailure("server", "broke", False, text="half an", next_model=True))

    async def scenario() -> None:
        async with in_virtual_time(first) as engine:
            add_fallbacks(engine, ScriptedModel(say("all of it")))
            shown = [
                (event.type, getattr(event.data, "attempt", 0), getattr(event.data, "text", ""))
                async for event in engine.stream(agent(**FALLBACKS), "go")
                if event.type in ("token", "attempt_reset")
            ]
        reset = shown.index(("attempt_reset", 2, ""))
        assert "".join(text for _, _, text in shown[:reset]) == "half an"
        assert "".join(text for _, _, text in shown[reset:]) == "all of it"

    virtually(scenario())


async def test_a_resumed_run_continues_with_its_fallback(tmp_path: Path) -> None:
    """What was fallen back to is in the journal, not in memory."""

    async with opened(tmp_path, ScriptedModel(REFUSED)) as engine:
        second = ScriptedModel(ScriptedFailure(next_model=True, retry_after=3600.0))
        add_fallbacks(engine, second)
        run_id = await engine.submit(agent(**FALLBACKS), "go")
        async for event in engine.events(run_id):
            if isinstance(event.data, RunWaiting):
                break
    async with opened(tmp_path, ScriptedModel()) as engine:
        add_fallbacks(engine, ScriptedModel(say("later")))
        await engine.steer(run_id, "now, please")
        assert (await engine.wait(run_id)).text == "later"


# ── The breaker ────────────────────────────────────────────────────────────────────────────────────


def test_a_failing_model_is_skipped_by_all_runs() -> None:
    down = FunctionModel(lambda _: ScriptedFailure("server", "down", retryable=False, next_model=True))

    async def scenario() -> None:
        async with in_virtual_time(down) as engine:
            add_fallbacks(engine, FunctionModel(lambda _: say("from the second")))
            lonely = agent(name="lonely")
            for _ in range(MIN_CALLS):
                assert (await engine.run(lonely, "go")).outcome == "model_error"
            result = await engine.run(agent(**FALLBACKS), "go")
            events = [event.data for event in await journal(engine, result.run_id)]
            assert result.text == "from the second"
            assert [data.provider for data in events if isinstance(data, LlmRequest)] == ["second"], (
                "none was spent"
            )
            [fallback] = [data for data in events if isinstance(data, LlmFallback)]
            assert "left alone for 30 s" in fallback.reason
            states = {state.provider: state.phase for state in engine.models.breakers()}
            assert states["scripted"] == "open"

    virtually(scenario())


def test_an_alias_uses_its_second_model_while_the_breaker_of_the_first_is_open(tmp_path: Path) -> None:
    """It falls back only when the breakers of all its models are open."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / "config.yaml").write_text("aliases: {twins: [first/a, scripted/x]}\n")
    home = Home(tmp_path / "home")

    async def scenario() -> None:
        engine = create_engine("sqlite:///:memory:", home=home, clock=LoopClock())
        engine.add_model("first", ScriptedModel(ask(call("let_others_fail"))))
        engine.add_model("scripted", FunctionModel(lambda _: say("from the twin")))
        add_fallbacks(engine, ScriptedModel())

        @treadle.tool(effect="read")
        async def let_others_fail() -> str:
            """While this runs, other runs find that the first model is down."""
            breaker = engine.models.resolve("first/a", None).breaker
            for _ in range(2 * MIN_CALLS):
                breaker.record(failed=True, now=asyncio.get_running_loop().time())
            return "it is down"

        async with engine:
            result = await engine.run(agent(model="twins", tools=[let_others_fail], **FALLBACKS), "go")
            events = [event.data for event in await journal(engine, result.run_id)]
        assert result.text == "from the twin"
        assert [data.provider for data in events if isinstance(data, LlmRequest)] == ["first", "scripted"]
        resolved = [data for data in events if isinstance(data, ModelResolved)]
        assert "first/a is left alone" in resolved[-1].reason
        assert not [data for data in events if isinstance(data, LlmFallback)]

    virtually(scenario())


def test_the_change_of_a_breaker_is_on_record_and_a_run_without_fallback_waits_for_the_probe() -> None:
    answers = iter([*[ScriptedFailure("server", "down", retryable=False)] * MIN_CALLS, say("up again")])
    model = FunctionModel(lambda _: next(answers))

    async def scenario() -> None:
        async with in_virtual_time(model) as engine:
            results = [await engine.run(agent(), "go") for _ in range(MIN_CALLS + 1)]
            opening = [event.data for event in await journal(engine, results[-2].run_id)]
            assert BreakerOpened("scripted", "x") in opening
            last = [event.data for event in await journal(engine, results[-1].run_id)]
            assert results[-1].text == "up again"
            [wait] = [data for data in last if isinstance(data, RunWaiting)]
            assert (wait.reason, "left alone" in wait.detail) == ("breaker", True)
            assert "breaker_closed" in types(await journal(engine, results[-1].run_id))

    virtually(scenario())


def test_errors_not_caused_by_the_model_do_not_open_its_breaker() -> None:
    async def scenario() -> None:
        async with in_virtual_time(FunctionModel(lambda _: REFUSED)) as engine:
            for _ in range(2 * MIN_CALLS):
                assert (await engine.run(agent(), "go")).outcome == "model_error"
            assert {state.phase for state in engine.models.breakers() if state.provider == "scripted"} == {"closed"}

    virtually(scenario())


# ── Other ways to try again ────────────────────────────────────────────────────────────────────────


async def test_a_refused_conversation_is_sent_again_in_plain_form(tmp_path: Path) -> None:
    refused = ScriptedFailure("invalid_request", "tool_use ids must be unique", False, repair=True, next_model=True)
    model = ScriptedModel(ask(call("look", place="x"), thinking="hm"), refused, say("done"))

    async with opened(tmp_path, model) as engine:
        result = await engine.run(agent(tools=[look]), "go")
        events = [event.data for event in await journal(engine, result.run_id)]
    assert result.text == "done"
    assert [request.plain for request in model.requests] == [False, False, True]
    [retry] = [data for data in events if isinstance(data, LlmRetry)]
    assert (retry.plain, retry.delay_ms) == (True, 0)


async def test_a_conversation_is_repaired_once_and_then_another_model_is_called(tmp_path: Path) -> None:
    refused = ScriptedFailure("invalid_request", "still wrong", False, repair=True, next_model=True)

    async with opened(tmp_path, ScriptedModel(refused, refused)) as engine:
        add_fallbacks(engine, ScriptedModel(say("fine")))
        result = await engine.run(agent(**FALLBACKS), "go")
    assert result.text == "fine"


async def test_another_key_is_tried_at_once_and_does_not_count_as_a_retry(tmp_path: Path) -> None:
    limited = ScriptedFailure("rate_limited", "slow down", True, retry_after=0.0, next_key=True)
    model = ScriptedModel(*[limited] * 5, say("done"))

    async with opened(tmp_path, model) as engine:
        result = await engine.run(agent(), "go")
    assert (result.text, result.metrics.model_calls) == ("done", 6)


@pytest.mark.parametrize("kind", ["auth", "not_found", "server", "billing"])
async def test_the_error_says_why_the_fallback_was_used(tmp_path: Path, kind: str) -> None:
    failure = ScriptedFailure(kind, f"because of {kind}", False, next_model=True)  # pyright: ignore[reportArgumentType] -- a kind
    async with opened(tmp_path, ScriptedModel(failure)) as engine:
        add_fallbacks(engine, ScriptedModel(say("ok")))
        result = await engine.run(agent(**FALLBACKS), "go")
        events = [event.data for event in await journal(engine, result.run_id)]
    [error] = [data for data in events if isinstance(data, LlmError)]
    assert (error.kind, error.next_model) == (kind, True)
    assert isinstance(events[-1], RunEnd)


async def test_a_run_without_usable_fallbacks_ends_with_the_first_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    async with opened(tmp_path, ScriptedModel(REFUSED)) as engine:
        result = await engine.run(agent(fallbacks=["openai/y"]), "go")
    assert result.outcome == "model_error"
    assert "the key is wrong" in result.reason
    assert "provider openai needs a key" in result.reason


async def test_an_unusable_fallback_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel()) as engine:
        add_fallbacks(engine, ScriptedModel())
        with pytest.raises(UsageError, match="no provider is called `secnd`; did you mean `second`"):
            await engine.submit(agent(fallbacks=["second/y", "secnd/y"]), "go")
        assert await engine.service.runs() == []


def test_other_keys_are_tried_a_limited_number_of_times() -> None:
    limited = ScriptedFailure("rate_limited", "slow down", True, retry_after=0.0, next_key=True, next_model=True)

    async def scenario() -> None:
        async with in_virtual_time(FunctionModel(lambda _: limited)) as engine:
            add_fallbacks(engine, ScriptedModel(say("instead")))
            result = await engine.run(agent(**FALLBACKS), "go")
        assert (result.text, result.metrics.model_calls) == ("instead", MAX_KEYS + 4 + 1)

    virtually(scenario())


async def test_an_excessive_retry_after_is_not_waited_for(tmp_path: Path) -> None:
    tomorrow = ScriptedFailure("rate_limited", "come back tomorrow", True, retry_after=86_400.0, next_model=True)

    async with opened(tmp_path, ScriptedModel(tomorrow)) as engine:
        add_fallbacks(engine, ScriptedModel(say("now")))
        assert (await engine.run(agent(**FALLBACKS), "go")).text == "now"


def test_a_deadline_does_not_wait_for_a_breaker() -> None:
    down = FunctionModel(lambda _: ScriptedFailure("server", "down", retryable=False))

    async def scenario() -> None:
        async with in_virtual_time(down) as engine:
            for _ in range(MIN_CALLS):
                await engine.run(agent(), "go")
            result = await engine.run(agent(limits={"deadline": 2}), "go")
        assert (result.outcome, result.metrics.duration_ms) == ("deadline", 2000)

    virtually(scenario())


async def test_a_probe_interrupted_by_closing_the_engine_is_abandoned(tmp_path: Path) -> None:
    model = FunctionModel(lambda _: Silence("so far"))

    async def scenario() -> None:
        async with opened(tmp_path, model) as engine:
            breaker = engine.models.resolve("scripted/x", None).breaker
            for _ in range(MIN_CALLS):
                breaker.record(failed=True, now=-1000.0)
            run_id = await engine.submit(agent(), "go")
            await until(engine, run_id, "token")
            assert breaker.wait(0.0) is not None, "the probe is out"
        assert breaker.wait(0.0) is None

    await scenario()
