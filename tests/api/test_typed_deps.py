"""Deps with a type: tools, instructions and results know it, and a wrong one is a type error."""

from pathlib import Path
from typing import assert_type

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
