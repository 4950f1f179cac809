"""Print an answer while it is written."""

import asyncio

import treadle

agent = treadle.Agent(model="openai/gpt-5")


async def main() -> None:
    async with treadle.Engine("sqlite:///stream.db") as engine:
        async for text in engine.stream_text(agent, "Tell me about looms."):
            print(text, end="", flush=True)
        print()


asyncio.run(main())
