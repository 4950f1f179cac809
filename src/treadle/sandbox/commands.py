"""Runs shell commands on this machine through the broker, confined by bubblewrap if the policy requires it and it
works."""

import asyncio
import logging
import os
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from treadle.domain.permissions import SandboxPolicy
from treadle.domain.writable_places import EnginePlaces, is_within
from treadle.ports.sandbox import (
    Command,
    CommandError,
    Confinement,
    Finished,
    Program,
    SandboxMissing,
    WritableCode,
)
from treadle.sandbox.advice import suggest_setting
from treadle.sandbox.broker_client import (
    BrokerProcess,
    CommandReport,
    CommandRequest,
    CommandSession,
    CommandWatch,
    to_finished,
)
from treadle.sandbox.bubblewrap import (
    ARGUMENTS_FROM,
    DEFAULT_VIEW,
    HOME,
    START_FOLDER,
    Bubblewrap,
    BubblewrapFeatures,
    SandboxView,
    explain_failure,
    is_within_system,
    list_private_paths,
)
from treadle.sandbox.environment import build_environment
from treadle.sandbox.executed_guard import ExecutedGuard
from treadle.sandbox.executed_scan import NOTHING_EXECUTED, ExecutedScan
from treadle.sandbox.git_settings import build_git_variables, read_git_overrides
from treadle.sandbox.limits import CommandLimits
from treadle.sandbox.output import Output
from treadle.sandbox.program_code import find_import_variables, find_writable_code
from treadle.sandbox.programs import (
    MAX_POLL_SECONDS,
    UNLIMITED_SECONDS,
    ProgramSession,
    check_unconfined,
    find_command_line,
    find_program,
    leave_out_places,
)
from treadle.sandbox.seccomp import build_unconfined_filter, explain_missing_filter
from treadle.sandbox.toolchains import SYSTEM_PATH, Toolchains, find_toolchains
from treadle.system.engine_places import list_engine_places

NOT_INSTALLED = "bubblewrap is not installed: apt-get install bubblewrap"
ONLY_LINUX = "bubblewrap is for Linux; here commands run with the rights of the engine's user"
PROBE_TIMEOUT_SECONDS = 10.0
PROBE_ATTEMPTS = 3
KILLED_EXIT_CODE = 128
"""Exit codes from here on mean that a signal ended the command."""
MAX_CACHED_WORKSPACES = 64
"""Workspaces whose toolchains are cached."""
BASH = "/bin/bash"

log = logging.getLogger("treadle.sandbox")


class ShellCommands:
    """Runs `bash -lc` for agents. Close it when the engine stops."""

    def __init__(
        self,
        *,
        hidden: Iterable[Path] = (),
        engine: EnginePlaces | None = None,
        limits: CommandLimits | None = None,
        user: Mapping[str, str] | None = None,
        bubblewrap: str | None = None,
    ) -> None:
        """`hidden` are folders and files that no policy may expose, such as the engine's home. `engine` are the
        places from which the engine loads code, found if omitted: no command may change them. `user` is the
        environment of the user, whose programs commands may use; without it they use those of the system.
        `bubblewrap` is the program, searched for if omitted."""
        self._engine = list_engine_places() if engine is None else engine
        self._hidden = tuple(dict.fromkeys(place.resolve() for place in hidden))
        self._limits = limits or CommandLimits.for_machine()
        self._user = user or {"PATH": SYSTEM_PATH}
        self._toolchains: dict[Path, Toolchains] = {}
        self._program = _find_bubblewrap() if bubblewrap is None else shutil.which(bubblewrap)
        self._shell = BASH if Path(BASH).exists() else shutil.which("bash", path=self._user.get("PATH")) or BASH
        self._executed = ExecutedGuard(self._engine, self._hidden)
        self._broker = BrokerProcess()
        self._confinement: Confinement | None = None
        self._probing = asyncio.Lock()
        self._sandbox = Bubblewrap(BubblewrapFeatures(), self._limits, self._hidden, (), self._engine)
        self._has_warned = False

    async def run(self, command: Command, show: Callable[[str], None]) -> Finished:
        confined = await self._is_confined(command.policy)
        workspace = _resolve_workspace(command.workspace)
        tools = self._find_tools(workspace)
        outside = _drop_writable(tools.outside, command.policy)
        overrides = await read_git_overrides(command.git, workspace, outside)
        try:
            executed = await self._executed.scan(workspace, command.policy) if confined else NOTHING_EXECUTED
        except asyncio.CancelledError:
            return Finished(exit_code=None, output="", output_length=0, ended_by="cancelled")
        git = build_git_variables(overrides, command.git)
        request = self._request(command, workspace, confined, tools, git, executed)
        output = Output(self._limits.kept_output, show)
        session = CommandSession(self._broker, output, self._limits.output)

        async def follow() -> tuple[CommandReport, tuple[str, ...]]:
            report = await session.follow(request)
            inspect = partial(self._executed.inspect, executed, workspace, command.policy, outside)
            return report, await inspect() if confined else ()

        following = asyncio.create_task(follow())
        while True:
            try:
                report, findings = await asyncio.shield(following)
                break
            except asyncio.CancelledError:
                if following.cancelled():
                    raise
                session.cancel()
        if report.left:
            log.warning("%d processes of a command could not be ended: %s", report.left, command.text)
        if not report.began and report.ended_by is None:
            raise CommandError(f"The command was not run: {explain_failure(output.text)}.")
        ended = msgspec.structs.replace(to_finished(report, output), findings=findings)
        advice = self._suggest_setting(ended, command.policy, str(workspace), executed) if confined else ""
        return msgspec.structs.replace(ended, advice=advice) if advice else ended

    def _suggest_setting(
        self, ended: Finished, policy: SandboxPolicy, workspace: str, executed: ExecutedScan
    ) -> str:
        protected = self._engine.list_inside(workspace)
        path = self._user.get("PATH", "")
        return suggest_setting(ended, policy, path, workspace, protected, executed.read_only)

    async def start(self, program: Program, max_line: int) -> ProgramSession:
        confined = await self._is_confined(program.policy)
        workspace = _resolve_workspace(program.workspace)
        folder = _resolve_start_folder(program, workspace)
        user = leave_out_places(self._user, program)
        line, tools = find_program(program.argv, user, workspace, self._hidden, HOME)
        try:
            imports = {} if program.folder == "workspace" else find_import_variables(line, program)
            variables = build_environment({**program.environment, **imports}, tools, HOME)
        except ValueError as error:
            raise CommandError(str(error)) from None
        if confined:
            view = SandboxView(program.access, folder, program.copies)
            executed = (await self._executed.scan(workspace, program.policy)).with_settings()
            request = self._build_confined_request(
                self._sandbox,
                line,
                workspace,
                program.policy,
                variables,
                UNLIMITED_SECONDS,
                tools.folders,
                executed,
                view,
            )
        else:
            check_unconfined(program)
            request = self._build_request(line, variables, str(workspace), folder, UNLIMITED_SECONDS)
            request = self._restrict_unconfined(request, program.policy)
        session = ProgramSession(self._broker, max_line)
        await session.start(msgspec.structs.replace(request, max_poll=MAX_POLL_SECONDS))
        return session

    async def find_writable_code(self, program: Program) -> tuple[WritableCode, ...]:
        workspace = _resolve_workspace(program.workspace)
        line = find_command_line(program.argv, self._user, workspace)
        folder = None if program.folder == "private" else _resolve_start_folder(program, workspace)
        return await asyncio.to_thread(find_writable_code, line, program.environment, folder, program.avoided)

    def _restrict_unconfined(self, request: CommandRequest, policy: SandboxPolicy) -> CommandRequest:
        restricted = msgspec.structs.replace(request, filter=build_unconfined_filter() or b"")
        if policy.mode == "off":
            return restricted
        # The system's own folders stay as they are: a reviewer may approve that a package is installed there.
        kept = tuple(place for place in self._engine.code if not is_within_system(place))
        return msgspec.structs.replace(restricted, denied=tuple(map(str, self._hidden)), read_only=kept)

    async def confinement(self) -> Confinement:
        async with self._probing:
            if self._confinement is None:
                self._confinement = await self._probe()
        return self._confinement

    def close(self) -> None:
        """Stop the broker. It is started again if another command arrives."""
        self._broker.close()

    async def _is_confined(self, policy: SandboxPolicy) -> bool:
        if policy.mode == "off":
            return False
        found = await self.confinement()
        if found.sandbox:
            return True
        if policy.mode == "required":
            raise SandboxMissing(found.reason)
        if not self._has_warned:
            self._has_warned = True
            log.warning(
                "Commands run without a sandbox: %s. They can read and write what the engine's user can. "
                "`sandbox: required` refuses to run them.",
                found.reason,
            )
        return False

    # ── Requests ──

    def _find_tools(self, workspace: Path) -> Toolchains:
        """Return the toolchains for a workspace, from the cache if possible."""
        if (found := self._toolchains.get(workspace)) is None:
            if len(self._toolchains) >= MAX_CACHED_WORKSPACES:
                self._toolchains.clear()
            found = self._toolchains[workspace] = find_toolchains(self._user, workspace, self._hidden, HOME)
        return found

    def _request(
        self,
        command: Command,
        workspace: Path,
        confined: bool,
        tools: Toolchains,
        git: dict[str, str],
        executed: ExecutedScan,
    ) -> CommandRequest:
        try:
            variables = build_environment(command.environment, tools, HOME, git)
        except ValueError as error:
            raise CommandError(str(error)) from None
        # A login shell takes the path from /etc/profile, which does not include the user's programs.
        line = (self._shell, "-lc", f"export PATH={shlex.quote(tools.path)}; {command.text}")
        if not confined:
            request = self._build_request(line, variables, str(workspace), str(workspace), command.timeout)
            return self._restrict_unconfined(request, command.policy)
        toolchains = tools.folders
        return self._build_confined_request(
            self._sandbox, line, workspace, command.policy, variables, command.timeout, toolchains, executed
        )

    def _build_confined_request(
        self,
        sandbox: Bubblewrap,
        line: tuple[str, ...],
        workspace: Path,
        policy: SandboxPolicy,
        variables: dict[str, str],
        timeout: float,
        toolchains: Sequence[Path] = (),
        executed: ExecutedScan = NOTHING_EXECUTED,
        view: SandboxView = DEFAULT_VIEW,
    ) -> CommandRequest:
        request = self._build_request(self._wrap(line), {}, str(workspace), "/", timeout)
        return msgspec.structs.replace(
            request,
            confined=sandbox.arguments(workspace, policy, variables, toolchains, executed, view),
            binds_workspace=sandbox.binds_workspace(view),
            files=sandbox.copied,
            filter=sandbox.filter,
        )

    def _wrap(self, line: tuple[str, ...]) -> tuple[str, ...]:
        return (self._program or "", "--args", ARGUMENTS_FROM, "--", *line)

    def _build_request(
        self,
        argv: tuple[str, ...],
        variables: dict[str, str],
        workspace: str,
        folder: str,
        timeout: float,
    ) -> CommandRequest:
        limits = self._limits
        return CommandRequest(
            argv=argv,
            environment=variables,
            workspace=workspace,
            folder=folder,
            timeout=timeout,
            grace=limits.grace,
            limits=CommandWatch(limits.memory, limits.processes, limits.disk_left),
            rlimits=limits.build_rlimits(timeout),
        )

    # ── Probe ──

    async def _probe(self) -> Confinement:
        if sys.platform != "linux":
            return Confinement(sandbox=False, reason=ONLY_LINUX)
        if self._program is None:
            return Confinement(sandbox=False, reason=NOT_INSTALLED)
        request = self._build_request((self._program, "--help"), {}, "/", "/", PROBE_TIMEOUT_SECONDS)
        (_, output) = await self._try(request)
        reason = await self._try_features(BubblewrapFeatures.read(output))
        unfiltered = (
            "" if self._sandbox.filter else explain_missing_filter() or "bubblewrap or the kernel cannot filter"
        )
        return Confinement(sandbox=reason is None, reason=reason or "", unfiltered=unfiltered)

    async def _try_features(self, features: BubblewrapFeatures) -> str | None:
        """Try all features, then fewer, for old kernels and containers. Return why none works, or None."""
        fewer: tuple[dict[str, bool], ...] = (
            {},
            {"no_nested": False},
            {"filters": False},
            {"no_nested": False, "filters": False},
        )
        tried: list[BubblewrapFeatures] = []
        reason = None
        for without in fewer:
            chosen = msgspec.structs.replace(features, **without)
            if chosen not in tried:
                tried.append(chosen)
                reason = await self._try_sandbox(chosen)
                if reason is None:
                    return None
        return reason

    async def _try_sandbox(self, features: BubblewrapFeatures) -> str | None:
        """Run a trivial command in a sandbox with these features. Use it from now on if that worked; return why not
        otherwise."""
        sandbox = Bubblewrap(features, self._limits, self._hidden, list_private_paths(), self._engine)
        workspace = _resolve_workspace(Path("/tmp"))
        line = (self._shell, "-c", "true")
        request = self._build_confined_request(sandbox, line, workspace, SandboxPolicy(), {}, PROBE_TIMEOUT_SECONDS)
        code, output = await self._try(request)
        if code != 0:
            return explain_failure(output)
        self._sandbox = sandbox
        return None

    async def _try(self, request: CommandRequest) -> tuple[int, str]:
        """Return the exit code and the output. Raise CommandError if the command was killed: that says nothing
        about the sandbox."""
        cause = ""
        for _ in range(PROBE_ATTEMPTS):
            output = Output(self._limits.kept_output, lambda text: None)
            try:
                report = await CommandSession(self._broker, output, self._limits.output).follow(request)
            except CommandError as error:
                cause = str(error)
                continue
            if report.ended_by is None and report.exit_code is not None and report.exit_code < KILLED_EXIT_CODE:
                return report.exit_code, output.text
            cause = f"a command that probes it was stopped ({report.ended_by or report.exit_code})."
        raise CommandError(f"The sandbox could not be checked: {cause} The command was not run; try again.")


def _resolve_workspace(workspace: Path) -> Path:
    try:
        return workspace.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise CommandError(f"The workspace {str(workspace)!r} cannot be used: {error}.") from None


def _resolve_start_folder(program: Program, workspace: Path) -> str:
    match program.folder:
        case "workspace":
            return str(workspace)
        case "private":
            return START_FOLDER
        case folder:
            return str(_resolve_workspace(folder))


def _drop_writable(path: str, policy: SandboxPolicy) -> str:
    """Return a search path without the folders that commands can write: the engine runs no program from there."""
    writable = [os.path.realpath(os.path.expanduser(name)) for name in policy.writable]
    kept = [each for each in path.split(":") if not any(is_within(each, folder) for folder in writable)]
    return ":".join(kept) or SYSTEM_PATH


def _find_bubblewrap() -> str | None:
    return shutil.which("bwrap", path=SYSTEM_PATH)
