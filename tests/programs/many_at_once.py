"""Fifty runs at once."""

import asyncio

import treadle

agent = treadle.Agent(name="counter", model="openai/gpt-5")


async def main() -> None:
    async with treadle.Engine("sqlite:///many.db") as engine:
        results = await asyncio.gather(*(engine.run(agent, f"Number {n}") for n in range(50)))
        print(sum(result.status == "completed" for result in results), "completed")
        for line in await engine.usage():
            print(line.key, line.runs, "runs")


asyncio.run(main())
