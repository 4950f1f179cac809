"""A plain function as a tool."""

import treadle


def get_weather(city: str) -> str:
    """Return the weather of a city."""
    return f"It is sunny in {city}."


agent = treadle.Agent(model="openai:gpt-5", instructions="You know the weather.", tools=[get_weather])
print(agent.run_sync("How is the weather in Lyon?").text)
