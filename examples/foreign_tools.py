"""Tools of LangChain and pydantic-ai as tools of an agent."""

from dataclasses import dataclass

import pydantic_ai
from langchain_core.tools import tool as langchain_tool

import treadle
from treadle.testing import ScriptedModel, ask, call, say


@dataclass
class Shop:
    stock: dict[str, int]


@langchain_tool
def price(product: str) -> float:
    "Return the price of a product in euros."
    return {"loom": 890.0}[product]


def count(context: pydantic_ai.RunContext[Shop], product: str) -> int:
    "Return how many of a product are in stock."
    return context.deps.stock[product]


def main() -> None:
    script = (
        ask(call("price", "c1", product="loom"), call("count", "c2", product="loom")),
        say("Three looms, at 890 euros each."),
    )
    agent = treadle.Agent(
        name="shop",
        model="scripted/any",
        tools=[
            treadle.tool(price, effect="read", repeatable=True),  # what its library does not say
            pydantic_ai.Tool(count),
        ],
    )
    with treadle.Engine("sqlite:///:memory:", deps=Shop({"loom": 3})) as engine:
        engine.add_model("scripted", ScriptedModel(*script))
        result = engine.run_sync(agent, "How many looms are there, and what does one cost?")
        print(result.text)
        for item in engine.do_sync(engine.transcript(result.run_id)):
            if isinstance(item, treadle.CallItem):
                print(item.name, item.result)


if __name__ == "__main__":
    main()
