"""Send a message to a run in progress."""

import asyncio

import treadle

engine = treadle.Engine("sqlite:///steer.db")


@treadle.tool
async def paint(colour: str, context: treadle.ToolContext) -> str:
    """Paint the wall."""
    if colour == "red":
        await engine.steer(context.run_id, "Make it blue instead.")
    return f"painted {colour}"


async def main() -> None:
    agent = treadle.Agent(name="painter", model="openai/gpt-5", tools=[paint])
    async with engine:
        result = await engine.run(agent, "Paint the wall red.")
        print(result.text)


asyncio.run(main())
