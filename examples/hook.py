"""A hook that looks at every call before it runs: it blocks one, and rewrites another."""

import asyncio

import treadle
from treadle.testing import ScriptedModel, ask, call, say


@treadle.tool(effect="external")
def send(to: str, text: str) -> str:
    "Send a message."
    return f"sent to {to}: {text}"


class Footer(treadle.Hook):
    """Adds a footer to messages, and sends none to rivals."""

    tools = "send"

    async def before(self, call: treadle.HookedCall) -> treadle.Block | treadle.Rewrite | None:
        if call.arguments["to"].endswith("@rival.example"):
            return treadle.Block("Messages to rivals are not sent.")
        return treadle.Rewrite({**call.arguments, "text": call.arguments["text"] + " (written by an agent)"})


async def main() -> None:
    script = (
        ask(
            call("send", "c1", to="ada@example.com", text="Hello."),
            call("send", "c2", to="eve@rival.example", text="Hi."),
        ),
        say("One message is on its way."),
    )
    async with treadle.Engine("sqlite:///:memory:") as engine:
        engine.add_model("scripted", ScriptedModel(*script))
        engine.add_hooks(Footer())
        result = await engine.run(treadle.Agent(name="writer", model="scripted/any", tools=[send]), "Say hello.")
        print(result.text)
        print("blocked:", [call.reason for call in result.blocked])


if __name__ == "__main__":
    asyncio.run(main())
