"""An async tool, with a typed argument, in an async program."""

import asyncio
from typing import Literal

import treadle


@treadle.tool
async def convert(amount: float, unit: Literal["km", "mi"]) -> float:
    """Convert a distance into the other unit."""
    await asyncio.sleep(0.01)
    return round(amount * 0.621 if unit == "km" else amount / 0.621, 1)


async def main() -> None:
    agent = treadle.Agent(name="converter", model="openai/gpt-5", tools=[convert])
    async with treadle.Engine() as engine:
        result = await engine.run(agent, "How many miles are 10 km?")
        print(result.status, result.text)
        print(result.usage.input_tokens, "tokens in")


asyncio.run(main())
