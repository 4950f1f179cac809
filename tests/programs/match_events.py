"""Follow what an agent does, event by event."""

import asyncio

import treadle


@treadle.tool
def search(query: str) -> list[str]:
    """Search the archive."""
    return [f"a page about {query}", "another page"]


async def main() -> None:
    agent = treadle.Agent(name="archivist", model="openai/gpt-5", tools=[search])
    async with treadle.Engine("sqlite:///events.db") as engine:
        async for event in engine.stream(agent, "Find pages about wool."):
            match event.data:
                case treadle.Token(text=text):
                    print("token", text)
                case treadle.ToolCallStart() as call:
                    print("call", call.name, call.arguments)
                case treadle.ToolCallEnd(content=result):
                    print("result", result)
                case treadle.RunEnd() as end:
                    print("end", end.outcome)
                case _:
                    pass


asyncio.run(main())
