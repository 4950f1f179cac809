"""Deps with a type: tools, instructions and results know it, and a wrong one is a type error."""

from pathlib import Path
from typing import Any, assert_type

import msgspec
import pytest

import treadle
from treadle.testing import ScriptedModel, ask, call, say


class Shop(msgspec.Struct):
    prices: dict[str, float]


class Article(msgspec.Struct):
    title: str


@treadle.tool(effect="read", repeatable=True)
def price(product: str, context: treadle.ToolContext[Shop]) -> float:
    """Return the price of a product."""
    assert_type(context.deps, Shop)
    return context.deps.prices[product]


def introduce(context: treadle.RunContext[Shop]) -> str:
    assert_type(context.deps, Shop)
    return f"You sell {', '.join(context.deps.prices)} to {context.user}."


async def test_the_type_checker_knows_deps_and_output(tmp_path: Path) -> None:
    seller = treadle.Agent(
        "seller", model="scripted/any", tools=[price], deps_type=Shop, output=Article, instructions=introduce
    )
    assert_type(seller, treadle.Agent[Shop, Article])
    script = ask(call("price", product="loom")), say('{"title": "A loom for 420"}')
    async with treadle.Engine(f"sqlite:///{tmp_path}/shop.db", home=tmp_path / "home") as engine:
        engine.add_model("scripted", ScriptedModel(*script))
        result = await engine.run(seller, "Offer a loom.", deps=Shop({"loom": 420.0}), tags=["offer"])
        assert_type(result.output, Article | None)
        assert result.output == Article("A loom for 420")
        with pytest.raises(treadle.TreadleError, match="the run has str"):
            await engine.run(seller, "Offer a loom.", deps="none")  # pyright: ignore[reportArgumentType] -- what is tested


async def test_the_type_checker_knows_the_answer_of_each_run(tmp_path: Path) -> None:
    """Text without an output; otherwise that of the agent, unless the run has one of its own."""
    helper, editor = (
        treadle.Agent("helper", model="scripted/any"),
        treadle.Agent("editor", model="scripted/any", output=Article),
    )
    teller = treadle.Agent("teller", model="scripted/any", deps_type=Shop)
    assert_type(helper, treadle.Agent[Any, str])
    assert_type(teller, treadle.Agent[Shop, str])
    assert_type(editor, treadle.Agent[Any, Article])
    assert_type(treadle.Agent("chooser", model="scripted/any", output=list[str] | int), treadle.Agent[Any, Any])
    article, number = '{"title": "Looms"}', "42"
    script = [say("It is fine."), say(article), say(article), say(number), say(number), say(article)]
    async with treadle.Engine(f"sqlite:///{tmp_path}/shop.db", home=tmp_path / "home") as engine:
        engine.add_model("scripted", ScriptedModel(*script))
        engine.add_agents(helper)
        assert assert_type((await engine.run(helper, "How is it?")).output, str | None) == "It is fine."
        title = assert_type((await engine.run(editor, "Write.")).output, Article | None)
        own = assert_type((await engine.run(helper, "Write.", output=Article)).output, Article | None)
        assert title == own == Article("Looms")
        assert assert_type((await engine.run("helper", "Count.", output=int)).output, int | None) == 42
        chosen = assert_type((await engine.run(helper, "Count.", output=list[str] | int)).output, Any | None)
        assert chosen == 42
        stream = engine.stream_output(helper, "Write.", output=Article)
        assert [value async for value in stream][-1] == {"title": "Looms"}
        assert assert_type(stream.result.output, Article | None) == Article("Looms")
