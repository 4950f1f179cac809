"""Show the transcript of a run with a line for each item."""

import asyncio

import treadle


@treadle.tool
def look_up(name: str) -> dict[str, str]:
    """Look up a person."""
    return {"name": name, "city": "Ghent"}


async def main() -> None:
    agent = treadle.Agent(name="clerk", model="openai/gpt-5", tools=[look_up])
    async with treadle.Engine("sqlite:///items.db") as engine:
        run = await engine.run(agent, "Where does Ada live?")
        for item in await engine.transcript(run.run_id):
            match item:
                case treadle.MessageItem(text=text):
                    print("user:", text)
                case treadle.CallItem(name=name, state=state):
                    print("tool:", name, state)
                case treadle.AnswerItem(text=text):
                    print("agent:", text)
                case _:
                    pass


asyncio.run(main())
