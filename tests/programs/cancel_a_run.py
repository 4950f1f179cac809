"""Start a run, and cancel it after a while."""

import asyncio

import treadle


@treadle.tool
async def wait_long() -> str:
    """Wait for a long time."""
    await asyncio.sleep(1000)
    return "waited"


async def main() -> None:
    agent = treadle.Agent(name="sleeper", model="openai/gpt-5", tools=[wait_long])
    async with treadle.Engine("sqlite:///sleeper.db") as engine:
        run_id = await engine.submit(agent, "Sleep.")
        await asyncio.sleep(1)
        await engine.cancel(run_id)
        print((await engine.wait(run_id)).status)


asyncio.run(main())
