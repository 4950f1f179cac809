"""The tool `bash`: runs a shell command line in the workspace, sandboxed where the machine supports it."""

import asyncio
import math
import os
import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct

from treadle.domain.events.tool_calls import ProcessKilled, SandboxDenied
from treadle.domain.tools import COMMAND, COMMAND_ALIAS, ToolSpec, strip_line
from treadle.ports.sandbox import Command, CommandError, Commands, EndedBy, Finished, GitUse, SandboxMissing
from treadle.ports.tool import (
    UNCONFINED_PREFIX,
    CallEnvironment,
    Concern,
    InvalidArguments,
    Observation,
    Subjects,
    ToolContext,
    ToolError,
)

DEFAULT_TIMEOUT_SECONDS = 60
MAX_TIMEOUT_SECONDS = 600
SPARE_SECONDS = 30
"""How much longer than the maximum timeout the engine waits, because stopping a command takes time."""
MAX_COMMAND_BYTES = 100_000
"""The operating system accepts no longer argument."""
PROGRESS_INTERVAL_SECONDS = 0.1

DESCRIPTION = (
    "Run a `bash` command line in the working folder. Each call is a new shell without input. Only files in the "
    "working folder stay."
)
_ADVICE: Mapping[EndedBy, str] = {
    "timeout": "It ran longer than its timeout of {timeout:g} s. Ask for less, or give a larger `timeout` (at most "
    f"{MAX_TIMEOUT_SECONDS}); it cannot go on in the background.",
    "output": "It wrote {length} bytes, more than a command may. Filter its output, or write it to a file.",
    "memory": "It used more memory than a command may. Work on less at a time.",
    "processes": "It started more processes than a command may. Run fewer at a time.",
    "disk": "It was about to fill the disk. Write less, and remove what is not needed.",
    "cancelled": "It was cancelled.",
}


class BashArguments(Struct, frozen=True, forbid_unknown_fields=True):
    command: Annotated[str, Meta(description="The command line.")]
    timeout: Annotated[
        float,
        Meta(gt=0, le=MAX_TIMEOUT_SECONDS, description="Seconds."),
    ] = DEFAULT_TIMEOUT_SECONDS


class Bash:
    """The tool `bash`. It can also be allowed and called as `run_command`."""

    def __init__(self, commands: Commands) -> None:
        self._commands = commands
        self._spec = make_command_spec()

    @property
    def spec(self) -> ToolSpec:
        return self._spec

    def parse(self, arguments: str) -> BashArguments:
        try:
            parsed = msgspec.json.decode(arguments, type=BashArguments)
        except msgspec.DecodeError as error:
            raise InvalidArguments(
                f"{error}. `{self._spec.name}` takes `command` and, if need be, `timeout`."
            ) from None
        if not parsed.command.strip():
            raise InvalidArguments("`command` is empty. Give the command line to run.")
        if "\0" in parsed.command:
            raise InvalidArguments("`command` holds a NUL character, which no command can.")
        if len(parsed.command.encode()) > MAX_COMMAND_BYTES:
            raise InvalidArguments(
                f"`command` is longer than {MAX_COMMAND_BYTES} bytes. Write it to a file with `write_file` first."
            )
        if (advice := _find_advice(parsed.command)) is not None:
            raise InvalidArguments(advice)
        return parsed

    def subjects(self, arguments: BashArguments) -> Subjects:
        return find_command_subjects(arguments.command)

    async def assess(self, arguments: BashArguments, scene: CallEnvironment) -> Concern | None:
        """Ask for approval if no sandbox works, unless a rule allows the command or the agent disables the
        sandbox."""
        if scene.sandbox.mode != "auto":
            return None
        confinement = await self._commands.confinement()
        if confinement.sandbox:
            return None
        return Concern("unconfined", f"{UNCONFINED_PREFIX}{confinement.reason}{_describe_exposed_code(scene)}")

    async def find_fault(self, arguments: BashArguments, scene: CallEnvironment) -> str | None:
        """Return why no command can run on this machine, if the agent requires a sandbox, or that the sandbox could
        not be checked."""
        if scene.sandbox.mode == "off":
            return None
        try:
            confinement = await self._commands.confinement()
        except CommandError as error:
            return str(error)
        if scene.sandbox.mode == "auto":
            return None
        return None if confinement.sandbox else _explain_unconfined(confinement.reason)

    async def run(self, arguments: BashArguments, context: ToolContext) -> Observation:
        output = _ProgressOutput(context.progress)
        command = Command(
            text=arguments.command,
            workspace=context.workspace,
            policy=context.sandbox,
            environment=dict(context.secrets),
            timeout=arguments.timeout,
            git=find_git_use(arguments.command),
        )
        try:
            finished = await self._commands.run(command, output.add)
        except SandboxMissing as missing:
            context.report(SandboxDenied(context.call_id, str(missing)))
            raise ToolError(f"The command was not run: {_explain_unconfined(str(missing))}") from None
        except CommandError as error:
            raise ToolError(str(error)) from None
        output.flush()
        if finished.ended_by is not None:
            context.report(_make_kill_event(finished, finished.ended_by, arguments, context))
        if finished.ended_by == "cancelled":
            raise asyncio.CancelledError
        return _make_observation(finished, arguments)


def make_command_spec() -> ToolSpec:
    """Return the declaration of the tool."""
    return ToolSpec(
        name=COMMAND,
        description=DESCRIPTION,
        schema=_arguments_schema(),
        effect="external",
        timeout=MAX_TIMEOUT_SECONDS + SPARE_SECONDS,
        needs=("workspace", "secrets"),
        aliases=(COMMAND_ALIAS,),
    )


def find_command_subjects(command: str) -> Subjects:
    """Return the parts of a command line that approval rules match."""
    from treadle.tools.shell.destructive import find_caution, find_destruction
    from treadle.tools.shell.glob_suggestion import suggest_line, suggest_pattern
    from treadle.tools.shell.parser import parse_commands
    from treadle.tools.shell.reading import only_reads

    parsed = parse_commands(command)
    caution = find_caution(command, parsed)
    destructive = find_destruction(command, parsed)
    line = strip_line(command)
    pattern = None if destructive is not None else suggest_pattern(parsed) or suggest_line(line)
    return Subjects(
        texts=parsed.commands,
        opaque=parsed.opaque,
        caution=caution,
        pattern=pattern,
        only_by_path=parsed.only_by_path,
        whole=line,
        commands=tuple(call.marked_words for call in parsed.calls),
        only_by_options=parsed.only_by_options,
        destructive=destructive,
        reads_only=caution is None and destructive is None and only_reads(parsed),
    )


def _describe_exposed_code(scene: CallEnvironment) -> str:
    """Return what a command without a sandbox can do to the engine in its workspace, or an empty string."""
    exposed = scene.engine.list_inside(os.path.realpath(scene.workspace))
    return f"; it can change the code that Treadle runs from, in {', '.join(exposed)}" if exposed else ""


def _arguments_schema() -> dict[str, Any]:
    (_,), components = msgspec.json.schema_components([BashArguments])
    schema = components["BashArguments"]
    return {key: value for key, value in schema.items() if key not in ("title", "additionalProperties")}


def _explain_unconfined(reason: str) -> str:
    return (
        f"this agent's commands must be confined, and this machine cannot do that ({reason}). Go on without "
        "commands, and tell the user."
    )


def _find_advice(line: str) -> str | None:
    """Return what to use instead of a line that cannot work here, or None."""
    from treadle.tools.shell.parser import parse_commands
    from treadle.tools.shell.patch_command import find_patch_advice
    from treadle.tools.shell.terminal import find_terminal_advice

    parsed = parse_commands(line)
    if (advice := find_patch_advice(line, parsed)) is not None:
        return advice
    advice = find_terminal_advice(parsed)
    return None if advice is None else f"There is no terminal here. {advice}"


def find_git_use(line: str) -> GitUse | None:
    """Return how a command line uses git, or None if it does not."""
    from treadle.tools.shell.git import find_git_use
    from treadle.tools.shell.parser import parse_commands

    return find_git_use(parse_commands(line).calls)


def _make_kill_event(
    finished: Finished, why: EndedBy, arguments: BashArguments, context: ToolContext
) -> ProcessKilled:
    return ProcessKilled(context.call_id, arguments.command, why, finished.killed_processes)


def _make_observation(finished: Finished, arguments: BashArguments) -> Observation:
    endings = [f"[{finding}]" for finding in finished.findings]
    if finished.ended_by is not None:
        advice = _ADVICE[finished.ended_by].format(timeout=arguments.timeout, length=finished.output_length)
        endings.append(f"[The command was ended. {advice}]")
    elif finished.advice:
        endings.append(f"[{finished.advice}]")
    failed = finished.ended_by is None and _is_failure(arguments.command, finished)
    if failed:
        endings.append(f"[The command failed with exit status {finished.exit_code}.]")
    break_before = "\n" if endings and finished.output and not finished.output.endswith("\n") else ""
    content = finished.output + break_before + "\n".join(endings)
    timed_out = finished.ended_by == "timeout"
    return Observation(
        content, finished.exit_code, is_error=failed or finished.ended_by is not None, timed_out=timed_out
    )


def _is_failure(line: str, finished: Finished) -> bool:
    if not finished.exit_code:  # the common case: the grammar need not be loaded
        return False
    from treadle.tools.shell.exit_status import is_failure

    return is_failure(line, finished.exit_code, finished.output)


class _ProgressOutput:
    """Reports output as progress, at most ten times a second."""

    def __init__(self, progress: Callable[[str], None]) -> None:
        self._progress = progress
        self._pending: list[str] = []
        self._last = -math.inf
        self._timer: asyncio.TimerHandle | None = None

    def add(self, text: str) -> None:
        self._pending.append(text)
        left = self._last + PROGRESS_INTERVAL_SECONDS - time.monotonic()
        if left <= 0:
            self.flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(left, self.flush)

    def flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._pending:
            self._last = time.monotonic()
            text, self._pending = "".join(self._pending), []
            self._progress(text)
