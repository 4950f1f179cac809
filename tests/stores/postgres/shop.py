"""A program whose runs have deps of their own: the tests import it, and start it as other processes.

python -m tests.stores.postgres.shop ROLE URL HOME"""

import asyncio
import sys
from pathlib import Path

import treadle
from treadle.api.engine import MakeDeps
from treadle.ports.model import ModelRequest
from treadle.testing import ask, call, say
from treadle.testing.models import FunctionModel, ScriptedReply


@treadle.tool(effect="read", repeatable=True)
def show_shop(context: treadle.ToolContext[str]) -> str:
    """Return the name of the shop."""
    return context.deps


@treadle.tool(effect="read", repeatable=True)
def show_sign() -> str:
    """Return what is written above the door."""
    return "Looms"


@treadle.tool(effect="external")
def sell(context: treadle.ToolContext[str]) -> str:
    """Sell a loom."""
    return f"sold by {context.deps}"


@treadle.tool(effect="read", repeatable=True)
async def count_stock(context: treadle.ToolContext[str]) -> str:
    """Count, which never ends in the process that submits."""
    print("counting", flush=True)
    if context.deps == "Weft":
        await asyncio.Event().wait()
    return f"counted by {context.deps}"


CLERK = treadle.Agent("clerk", model="scripted/any", tools=[show_shop])
SELLER = treadle.Agent(
    "seller",
    model="scripted/any",
    tools=[show_shop, show_sign, sell, count_stock, CLERK],
    approvals={"default": "auto", "rules": [{"tool": "sell", "do": "ask"}]},
)


def reply(request: ModelRequest) -> ScriptedReply:
    """Call the tool that the message names, or the clerk."""
    last = request.conversation.messages[-1]
    if last.role != "user" or last.text == "Hello.":
        return say("Done.")
    if last.text == "clerk":
        return ask(call("invoke_agent", agent="clerk", message="show_shop"))
    return ask(call(last.text))


def open_engine(url: str, home: Path, make_deps: MakeDeps | None = None) -> treadle.Engine:
    """Return an engine of the program."""
    engine = treadle.Engine(url, home=home, make_deps=make_deps)
    engine.add_model("scripted", FunctionModel(reply))
    engine.add_agents(SELLER)
    return engine


def open_bare_engine(url: str, home: Path) -> treadle.Engine:
    """Return an engine that has the model of the program, and none of its tools."""
    engine = treadle.Engine(url, home=home)
    engine.add_model("scripted", FunctionModel(reply))
    return engine


async def read_words() -> list[str]:
    return (await asyncio.to_thread(sys.stdin.readline)).split()


async def approve(url: str, home: Path) -> None:
    """Execute runs, and approve what it is told to."""
    async with open_engine(url, home) as engine:
        print("open", flush=True)
        while words := await read_words():
            await engine.decide(words[0], "approve")


async def lack(url: str, home: Path) -> None:
    """Execute runs, as far as no tools are needed."""
    async with open_bare_engine(url, home):
        print("open", flush=True)
        await read_words()


async def submit(url: str, home: Path) -> None:
    """Submit a run that does not end."""
    async with open_engine(url, home) as engine:
        print(await engine.submit(SELLER, "count_stock", deps="Weft"), flush=True)
        await read_words()


if __name__ == "__main__":
    asyncio.run({"plain": approve, "bare": lack, "submitter": submit}[sys.argv[1]](sys.argv[2], Path(sys.argv[3])))
