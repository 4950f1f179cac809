"""A test that needs no network."""

import treadle
from treadle.testing import ScriptedModel, call, say


@treadle.tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def test_the_agent_adds() -> None:
    agent = treadle.Agent(name="adder", model="fake/any", tools=[add])
    engine = treadle.Engine("sqlite:///:memory:")
    engine.add_model("fake", ScriptedModel(call("add", a=2, b=3), say("It is 5.")))
    assert engine.run_sync(agent, "2 + 3?").text == "It is 5."


test_the_agent_adds()
print("passed")
