"""A batch, four at a time: one that fails does not stop the others, and its usage is known."""

import asyncio

import treadle

agent = treadle.Agent(name="tagger", model="openai/gpt-5", limits={"max_steps": 3}, retry={"attempts": 0})


async def main() -> None:
    limit = asyncio.Semaphore(4)
    async with treadle.Engine("sqlite:///batch.db") as engine:

        async def label(text: str) -> treadle.Result[str]:
            async with limit:
                return await engine.run(agent, f"Label: {text}", tags=["batch-1"])

        results = await asyncio.gather(*[label(f"text {number}") for number in range(8)])
        print(sorted(result.outcome or "" for result in results).count("completed"), "of", len(results))
        print(sum(line.runs for line in await engine.usage(tag="batch-1")), "in the usage of the batch")


asyncio.run(main())
