"""A hook that blocks what a program never wants."""

import treadle


@treadle.tool
def query(sql: str) -> str:
    """Query the database."""
    return "3 rows"


class ReadOnly(treadle.Hook):
    async def before_call(self, call: treadle.HookedCall) -> treadle.Block | None:
        if "drop" in str(call.arguments).lower():
            return treadle.Block("Only SELECT is allowed.")
        return None


agent = treadle.Agent(name="analyst", model="openai/gpt-5", tools=[query])
with treadle.Engine("sqlite:///analyst.db") as engine:
    engine.add_hooks(ReadOnly())
    print(engine.run_sync(agent, "Drop the table.").text)
