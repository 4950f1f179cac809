"""Try another question from the same start, and compare the two runs."""

import asyncio

import treadle


async def main() -> None:
    agent = treadle.Agent(name="poet", model="openai/gpt-5")
    async with treadle.Engine("sqlite:///poet.db") as engine:
        first = await engine.run(agent, "A poem about rain.")
        second = await engine.fork(first.run_id, message="A poem about snow.")
        result = await engine.wait(second)
        print(first.text, "|", result.text)
        difference = await engine.compare(first.run_id, second)
        print("same steps:", difference.same_steps)
        print("replays the same:", (await engine.replay(first.run_id)).is_same)


asyncio.run(main())
