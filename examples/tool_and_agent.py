"""A function as a tool, and an agent that uses it."""

import treadle
from treadle.testing import ScriptedModel, ask, call, say


@treadle.tool(effect="read", repeatable=True)
def temperature(city: str) -> float:
    "Return the temperature in a city, in degrees Celsius."
    return {"Rome": 24.5, "Oslo": 11.0}[city]


def main() -> None:
    engine = treadle.Engine("sqlite:///:memory:")
    engine.add_model("scripted", ScriptedModel(ask(call("temperature", city="Rome")), say("It is 24.5 degrees.")))
    agent = treadle.Agent(name="weather", model="scripted/any", tools=[temperature])
    result = engine.run_sync(agent, "How warm is it in Rome?")
    print(result.outcome, result.text)


if __name__ == "__main__":
    main()
