"""A run that must not take more than three steps or a minute."""

import treadle


@treadle.tool(effect="read")
def roll() -> int:
    """Roll a die."""
    return 4


agent = treadle.Agent(name="gambler", model="openai/gpt-5", tools=[roll], limits={"max_steps": 3, "deadline": "1m"})
result = agent.run_sync("Roll until you get a 6.")
print(result.status, result.outcome, result.reason)
