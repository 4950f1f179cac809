"""Each user has sessions of their own."""

import asyncio

import treadle


async def main() -> None:
    agent = treadle.Agent(name="desk", model="openai/gpt-5", memory={})
    async with treadle.Engine("sqlite:///desk.db") as engine:
        ada = await engine.run(agent, "I am Ada.", user="ada")
        bob = await engine.run(agent, "I am Bob.", user="bob")
        print(ada.session_id != bob.session_id)
        try:
            await engine.run(agent, "What did Ada say?", user="bob", session=ada.session_id)
        except treadle.TreadleError as error:
            print("refused:", error)


asyncio.run(main())
