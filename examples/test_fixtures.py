"""Fixtures for tests of agents: a scripted model, a clock that tests move, and a recorded run.

pytest examples/test_fixtures.py"""

from collections.abc import Callable, Generator
from pathlib import Path

import pytest

import treadle
from treadle.testing import FakeClock, ScriptedModel, ScriptStep, ask, call, load_script, save_script, say

RECORDED = Path(__file__).parent / "recorded_run.json"
"""The replies of a real model, written by `save_script`. Tools run anew in each test."""
OpenEngine = Callable[..., treadle.Engine]


@treadle.tool(effect="read", repeatable=True)
def stock(product: str, context: treadle.ToolContext) -> int:
    "Return how many of a product are in stock."
    context.deps.pass_time(40)  # the warehouse is slow
    return 3


SHOP = treadle.Agent(name="shop", model="openai/gpt-5", tools=[stock], limits={"deadline": "1m"})


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def open_engine(clock: FakeClock, tmp_path: Path) -> Generator[OpenEngine]:
    """Yield a function that opens an engine with a script. Every step must be used."""
    opened: list[tuple[treadle.Engine, ScriptedModel]] = []

    def open_engine(*script: ScriptStep) -> treadle.Engine:
        engine, model = (
            treadle.Engine("sqlite:///:memory:", home=tmp_path, deps=clock, clock=clock),
            ScriptedModel(*script),
        )
        engine.add_model("openai", model)  # instead of the provider of the agent
        opened.append((engine.open(), model))
        return engine

    yield open_engine
    for engine, model in opened:
        engine.close()
        model.finish()


def test_the_agent_looks_up_the_stock(open_engine: OpenEngine) -> None:
    engine = open_engine(ask(call("stock", product="loom")), say("Three looms."))
    assert engine.run_sync(SHOP, "How many looms are there?").text == "Three looms."


def test_a_run_that_takes_too_long_ends(open_engine: OpenEngine) -> None:
    engine = open_engine(ask(call("stock", product="loom")), ask(call("stock", product="treadle")))
    assert engine.run_sync(SHOP, "How many looms and treadles are there?").outcome == "deadline"


def test_the_agent_answers_as_it_was_recorded(open_engine: OpenEngine, tmp_path: Path) -> None:
    engine = open_engine(*load_script(RECORDED))
    result = engine.run_sync(SHOP, "How many looms are there?")
    assert result.text == "There are 3 looms in stock."
    engine.do_sync(save_script(engine, result.run_id, tmp_path / "again.json"))
    assert load_script(tmp_path / "again.json") == load_script(RECORDED)
