"""Complexity routing: the score of a message and the tier that it selects."""

from pathlib import Path
from typing import Any

import pytest

from tests.core.run_scenario import ORIGIN, READ, START, WRITE
from tests.engine.running import agent, journal, opened
from treadle.config.home import Home
from treadle.core.fold import fold
from treadle.core.routing import Route, choose_route, score_complexity
from treadle.core.state import RunState, new_state
from treadle.domain import events as e
from treadle.domain.agents import AgentSpec, Routing, Tier
from treadle.domain.errors import ConfigError
from treadle.domain.messages import user
from treadle.testing.models import ScriptedModel, say

TIERS = Routing((Tier("small/s", 10), Tier("middle/m", 40), Tier("large/l")))
CODE = "```python\nprint(1)\n```"


def start_run(text: str, *tools: Any, routing: Routing | None = TIERS) -> RunState:
    state = new_state(ORIGIN)
    spec = AgentSpec("hero", "own/model", routing=routing)
    for sequence, data in enumerate((e.RunQueued(spec), e.UserMessage(user(text)), e.RunStart(tools)), 1):
        fold(state, data, sequence, START)
    return state


@pytest.mark.parametrize(
    ("text", "tools", "model"),
    [
        ("What is 2+3?", (), "small/s"),
        (f"Why does this fail? {CODE}", (), "middle/m"),
        ("word " * 300, (READ, WRITE), "middle/m"),
        (f"{CODE} " + "word " * 2000, (READ, WRITE), "large/l"),
    ],
)
def test_a_harder_message_goes_to_a_larger_model(text: str, tools: tuple[Any, ...], model: str) -> None:
    assert choose_route(start_run(text, *tools)).model == model


def test_without_tiers_the_agents_own_model_answers() -> None:
    assert choose_route(start_run("anything", routing=None)) == Route("own/model", "")


def test_the_score_is_the_sum_of_its_reasons() -> None:
    found = score_complexity(start_run(f"{CODE} " + "word " * 200, READ))
    assert found.points == sum(int(reason.rpartition(": ")[2]) for reason in found.reasons)
    assert any(reason.startswith("code") for reason in found.reasons)


def test_the_last_tier_covers_everything_beyond_it() -> None:
    tiers = Routing((Tier("small/s", 1), Tier("middle/m", 2)))
    assert choose_route(start_run(CODE, routing=tiers)).model == "middle/m"


def test_more_of_anything_never_lowers_the_score() -> None:
    points = [score_complexity(start_run("word " * count)).points for count in range(0, 3000, 100)]
    assert points == sorted(points)


@pytest.mark.parametrize(
    ("tiers", "words"),
    [
        ("[]", "tiers must not be empty"),
        ("[{model: a/b}, {model: c/d, upto: 5}]", "only the last one may be without upto"),
        ("[{model: a/b, upto: 9}, {model: c/d, upto: 5}, {model: e/f}]", "in the order of their upto"),
    ],
)
def test_invalid_tiers_are_reported(tmp_path: Path, tiers: str, words: str) -> None:
    folder = tmp_path / "agents" / "hero"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text(f"name: hero\nmodel: a/b\nrouting: {{tiers: {tiers}}}\n")
    with pytest.raises(ConfigError, match=words):
        Home(tmp_path).agent("hero")


async def test_the_routed_model_is_recorded_and_kept(tmp_path: Path) -> None:
    async with opened(tmp_path, ScriptedModel()) as engine:
        engine.add_model("small", ScriptedModel(say("5")))
        hero = agent(routing={"tiers": [{"upto": 10, "model": "small/s"}, {"model": "scripted/x"}]})
        result = await engine.run(hero, "What is 2+3?")
        events = [event.data for event in await journal(engine, result.run_id)]
    [resolved] = [data for data in events if isinstance(data, e.ModelResolved)]
    assert (resolved.provider, resolved.route) == ("small", "small/s")
    assert "complexity 0" in resolved.reason
    assert "the tier up to 10" in resolved.reason
