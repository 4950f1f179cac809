"""Hooks of agents that are shell commands: event as JSON on standard input, decision as JSON on standard output.

A hook runs in the sandbox of the agent, but not in its workspace: it starts in a folder that contains only its own
program, so that it executes and imports nothing that the agent could have written."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, Literal

import msgspec
from msgspec import Struct

from treadle.domain.agents import AgentSpec
from treadle.domain.hooks import CommandHook
from treadle.domain.permissions import SandboxPolicy
from treadle.ports.hooks import Block, Hook, HookedCall, Rewrite
from treadle.ports.sandbox import Program, Programs, RunningProgram
from treadle.ports.tool import Observation
from treadle.tools.hook_programs import HookPlaces, HookRefused, copy_scripts, read_scripts

MAX_ANSWER_BYTES = 2**20
BLOCKED_EXIT_CODE = 2
"""The exit code with which a hook blocks a call, as in other tools. The reason is its standard error."""
SHELL = "/bin/bash"
WORKSPACE_VARIABLE = "TREADLE_WORKSPACE"
"""The variable in which a hook finds the workspace of the agent."""


class HookDecision(Struct, frozen=True, forbid_unknown_fields=True):
    """What a hook may write to its standard output."""

    decision: Literal["allow", "block"] = "allow"
    reason: str = ""
    arguments: dict[str, Any] | None = None
    """Before a call: other arguments for it."""
    result: str | None = None
    """After a call: another result."""


class HookSetup(Struct, frozen=True):
    """What the hooks of an agent need to run."""

    workspace: Path
    policy: SandboxPolicy
    places: HookPlaces
    programs: Programs
    find_refusal: Callable[[str], Awaitable[str | None]]
    """Returns why a command line must not run on this machine, or None: without a sandbox it needs the same consent
    as a command of the agent."""


class ShellHook(Hook):
    """Implements `ports.hooks.Hook` with a command."""

    def __init__(self, settings: CommandHook, setup: HookSetup) -> None:
        self._settings = settings
        self._setup = setup
        self.tools = settings.tools
        self.timeout = settings.timeout

    @property
    def name(self) -> str:
        return f"`{self._settings.command[:80]}`"

    async def before(self, call: HookedCall) -> Block | Rewrite | None:
        if self._settings.on != "before":
            return None
        decision = await self._decide(_describe(call, "before"))
        if decision.decision == "block":
            return Block(decision.reason or "a hook of the agent blocked it")
        return None if decision.arguments is None else Rewrite(decision.arguments)

    async def after(self, call: HookedCall, result: Observation) -> Observation | None:
        if self._settings.on != "after":
            return None
        event = {**_describe(call, "after"), "result": result.content, "is_error": result.is_error}
        decision = await self._decide(event)
        if decision.decision == "block":
            raise PermissionError(decision.reason or "a hook of the agent withheld the result")
        if decision.result is None:
            return None
        return msgspec.structs.replace(result, content=decision.result, images=())

    async def _decide(self, event: dict[str, Any]) -> HookDecision:
        """Run the command. Raise an exception, which blocks the call, if it fails or does not answer as it
        should."""
        if (refusal := await self._setup.find_refusal(self._settings.command)) is not None:
            raise HookRefused(refusal)
        contents = read_scripts(self._settings, self._setup.places)
        with copy_scripts(contents, self._setup.places) as folder:
            return await self._run(folder, event)

    async def _run(self, folder: Path, event: dict[str, Any]) -> HookDecision:
        setup = self._setup
        program = Program(
            argv=(SHELL, "-c", self._settings.command),
            workspace=setup.workspace,
            policy=msgspec.structs.replace(setup.policy, readable=(*setup.policy.readable, str(folder))),
            environment={WORKSPACE_VARIABLE: str(setup.workspace)},
            folder=folder,
            avoided=setup.places.writable,
        )
        process = await setup.programs.start(program, MAX_ANSWER_BYTES)
        try:
            writing = asyncio.create_task(_write(process, msgspec.json.encode(event)))
            answer = await process.output.read(MAX_ANSWER_BYTES + 1)
            while len(answer) <= MAX_ANSWER_BYTES and (more := await process.output.read(MAX_ANSWER_BYTES + 1)):
                answer += more
            await writing
            code = await process.wait() if len(answer) <= MAX_ANSWER_BYTES else None
        finally:
            await asyncio.shield(process.stop(0.0))
        if code == BLOCKED_EXIT_CODE:
            return HookDecision("block", process.errors[:1000])
        if code != 0:
            raise RuntimeError(f"it ended with exit code {code} {process.errors[-300:]}".strip())
        if not answer.strip():
            return HookDecision()
        return msgspec.json.decode(answer, type=HookDecision)


def make_command_hooks(agent: AgentSpec, setup: HookSetup) -> Sequence[Hook]:
    """Return the hooks that the file of an agent names."""
    return [ShellHook(each, setup) for each in agent.hooks]


async def _write(process: RunningProgram, data: bytes) -> None:
    try:
        await process.write(data + b"\n")
    except OSError:
        return  # it need not read the event
    finally:
        process.close_input()


def _describe(call: HookedCall, event: str) -> dict[str, Any]:
    return {
        "event": event,
        "run_id": call.run_id,
        "session_id": call.session_id,
        "agent": call.agent,
        "call_id": call.call_id,
        "tool": call.tool.name,
        "arguments": call.arguments,
    }
