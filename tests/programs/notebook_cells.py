"""Cells of a notebook: an event loop is running, and the engine stays open until the end of the process."""

import asyncio

import treadle

agent = treadle.Agent("helper", model="openai/gpt-5")


async def run_cells() -> None:
    print(agent.run_sync("Hello.").text)
    engine = treadle.Engine("sqlite:///notebook.db").open()
    result = engine.run_sync(agent, "Hello again.")
    print(result.text)
    for text in engine.stream_text_sync(agent, "Go on.", session=result.session_id):
        print(text, end="")
    print(f"\n{len(engine.do_sync(engine.messages(result.session_id)))} messages")


asyncio.run(run_cells())
