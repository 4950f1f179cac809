"""A test of an agent, with the scripted model: `pytest examples/test_agent.py`."""

import treadle
from treadle.testing import ScriptedModel, ask, call, say


@treadle.tool(effect="read", repeatable=True)
def stock(product: str, context: treadle.ToolContext) -> int:
    "Return how many of a product are in stock."
    return context.deps[product]


def make_agent() -> treadle.Agent:
    return treadle.Agent(name="shop", model="scripted/any", tools=[stock])


def test_the_agent_looks_up_the_stock() -> None:
    with ScriptedModel(ask(call("stock", product="loom")), say("Three looms.")) as model:
        engine = treadle.Engine("sqlite:///:memory:", deps={"loom": 3})
        engine.add_model("scripted", model)
        result = engine.run_sync(make_agent(), "How many looms are there?")
    assert result.text == "Three looms."
    assert "3" in str(model.requests[-1].conversation.messages[-1])
