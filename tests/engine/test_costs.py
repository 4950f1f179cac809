"""The cost of a run: every call has an estimate before it is sent and a price after it, also if it failed or was
cut."""

from pathlib import Path

import pytest

import treadle
from tests.engine.running import agent, journal, opened, until
from treadle.domain.events import LlmError, LlmRequest, LlmResponse
from treadle.domain.runs import Usage
from treadle.testing.models import ScriptedFailure, ScriptedModel, Silence, ask, call, say

PRICED = "models: {scripted/x: {prices: {input: 3, output: 15, cache_read: 0.3}, max_output: 1000}}\n"


@treadle.tool(effect="read", repeatable=True)
async def look(place: str) -> str:
    """Look somewhere."""
    return "nothing " * 1000


def priced(folder: Path, text: str = PRICED) -> Path:
    (folder / "home").mkdir()
    (folder / "home" / "config.yaml").write_text(text)
    return folder


async def test_every_call_has_its_price_and_the_run_the_sum(tmp_path: Path) -> None:
    model = ScriptedModel(
        ask(call("look", place="x"), usage=Usage(1000, 100)),
        say("done", usage=Usage(4000, 10, cache_read_tokens=1000)),
    )

    async with opened(priced(tmp_path), model) as engine:
        result = await engine.run(agent(tools=[look]), "go")
        events = [event.data for event in await journal(engine, result.run_id)]
    costs = [data.cost for data in events if isinstance(data, LlmResponse)]
    assert costs == pytest.approx([0.0045, (3000 * 3 + 1000 * 0.3 + 10 * 15) / 1e6])
    assert result.metrics.cost == pytest.approx(sum(filter(None, costs)))
    assert (result.metrics.unpriced_calls, result.metrics.cache_hit_rate) == (0, 0.2)


async def test_the_estimate_covers_the_request_and_the_longest_reply(tmp_path: Path) -> None:
    model = ScriptedModel(ask(call("look", place="x"), usage=Usage(500, 20)), say("done"))

    async with opened(priced(tmp_path), model) as engine:
        result = await engine.run(agent(tools=[look], persona="Be brief. " * 100), "go")
        events = [event.data for event in await journal(engine, result.run_id)]
    first, second = (data for data in events if isinstance(data, LlmRequest))
    assert first.input_estimate >= 1000 // 4, "the persona counts"
    assert first.cost_estimate == pytest.approx((first.input_estimate * 3 + 1000 * 15) / 1e6)
    grown = 1000  # words
    assert 520 + grown <= second.input_estimate <= 520 + grown + 80, "what was counted, and what came since"


async def test_failed_attempts_are_charged_for_their_usage(tmp_path: Path) -> None:
    half = ScriptedFailure(
        "server", "broke off", True, retry_after=0.0, text="half an", usage=Usage(100, 3, estimated=True)
    )
    unsent = ScriptedFailure("unreachable", "nobody there", True, retry_after=0.0)

    async with opened(priced(tmp_path), ScriptedModel(half, unsent, say("all", usage=Usage(100, 4)))) as engine:
        result = await engine.run(agent(), "go")
        events = [event.data for event in await journal(engine, result.run_id)]
    costs = [data.cost for data in events if isinstance(data, LlmError)]
    assert costs == [pytest.approx(0.000345), 0.0]
    assert result.metrics.cost == pytest.approx(0.000345 + 0.00036)
    assert result.metrics.estimated


async def test_an_interrupted_call_is_charged_by_estimate(tmp_path: Path) -> None:
    async with opened(priced(tmp_path), ScriptedModel(Silence("so far " * 100))) as engine:
        run_id = await engine.submit(agent(persona="x" * 4000), "go")
        await until(engine, run_id, "token")
        await engine.cancel(run_id)
        result = await engine.wait(run_id)
    assert result.metrics.estimated
    assert result.metrics.cost > 1000 * 3 / 1e6


async def test_without_a_price_the_run_reports_how_many_calls_the_sum_lacks(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel(ask(call("look", place="x")), say("done"))) as engine:
        result = await engine.run(agent(tools=[look]), "go")
    assert (result.metrics.cost, result.metrics.unpriced_calls) == (0.0, 2)
