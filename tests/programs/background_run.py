"""Queue a run, do something else, and fetch the result later."""

import asyncio

import treadle


async def main() -> None:
    agent = treadle.Agent(name="slow", model="openai/gpt-5")
    async with treadle.Engine("sqlite:///slow.db") as engine:
        run_id = await engine.submit(agent, "Think about looms.")
        print("queued")
        result = await engine.wait(run_id)
        print(result.text)
        shown = await engine.show(run_id)
        print(shown.status, shown.steps)


asyncio.run(main())
