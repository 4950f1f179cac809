"""Approvals that a program decides."""

import asyncio
import json

import treadle
from treadle.testing import ScriptedModel, ask, call, say


@treadle.tool(effect="external")
def deploy(version: str, production: bool) -> str:
    "Deploy a version."
    return f"deployed {version}"


def decide(approval: treadle.ApprovalView) -> bool:
    """Approve everything but deployments to production."""
    return not json.loads(approval.arguments)["production"]


async def main() -> None:
    script = (
        ask(
            call("deploy", "c1", version="1.2", production=False),
            call("deploy", "c2", version="1.2", production=True),
        ),
        say("Version 1.2 is on the test system."),
    )
    async with treadle.Engine("sqlite:///:memory:") as engine:
        engine.add_model("scripted", ScriptedModel(*script))
        agent = treadle.Agent(name="operator", model="scripted/any", tools=[deploy], approvals={"default": "ask"})
        result = await engine.run(agent, "Deploy 1.2.", on_approval=decide)
        print(result.text)
        print("denied:", [call.tool for call in result.denied])


if __name__ == "__main__":
    asyncio.run(main())
