"""An agent that delegates work to another one."""

import asyncio

import treadle
from treadle.ports.model import ModelRequest
from treadle.testing import FunctionModel, ScriptStep, ask, call, say


def play(request: ModelRequest) -> ScriptStep:
    """Answer as the lead, who delegates once, or as the researcher."""
    messages = request.conversation.messages
    if "Looms" in str(messages[0]):
        return say("The treadle loom was known in China before 1000.")
    if messages[-1].role == "tool":
        return say("According to my researcher: before the year 1000, in China.")
    return ask(call("agent_spawn", agent="researcher", message="Looms: when and where?"))


async def main() -> None:
    async with treadle.Engine("sqlite:///:memory:") as engine:
        engine.add_model("scripted", FunctionModel(play))
        engine.add_agents(treadle.Agent(name="researcher", model="scripted/any"))
        lead = treadle.Agent(name="lead", model="scripted/any", tools=["agent_spawn"])
        print((await engine.run(lead, "Since when are there treadle looms?")).text)


if __name__ == "__main__":
    asyncio.run(main())
