"""A long tool that reports its progress."""

import asyncio

import treadle


@treadle.tool
async def index(folder: str, context: treadle.ToolContext) -> str:
    """Index a folder."""
    for percent in (0, 50, 100):
        context.progress(f"{percent} %")
        await asyncio.sleep(0.01)
    return f"indexed {folder}"


async def main() -> None:
    agent = treadle.Agent(name="indexer", model="openai/gpt-5", tools=[index])
    async with treadle.Engine("sqlite:///indexer.db") as engine:
        async for event in engine.stream(agent, "Index docs."):
            if isinstance(event.data, treadle.ToolCallProgress):
                print("progress", event.data.text)


asyncio.run(main())
