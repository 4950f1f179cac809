"""A worker that runs one command, to be killed meanwhile: `python -m tests.sandbox.worker MODE WORKSPACE TEXT`."""

import asyncio
import sys
from pathlib import Path

from tests.sandbox.hostile import POLICIES
from treadle.ports.sandbox import Command
from treadle.sandbox.commands import ShellCommands


def say(text: str) -> None:
    print(text, end="", flush=True)


async def work(mode: str, workspace: str, text: str) -> None:
    commands = ShellCommands()
    await commands.confinement()
    say("starting\n")
    policy = next(policy for name, policy in POLICIES.items() if name == mode)
    await commands.run(Command(text, Path(workspace), policy), say)


if __name__ == "__main__":
    asyncio.run(work(*sys.argv[1:]))
