"""Shell commands on this machine, by the keeper, confined by bubblewrap where the policy wants it and it works."""

import asyncio
import logging
import shlex
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

import msgspec

from treadle.domain.permissions import SandboxPolicy
from treadle.ports.sandbox import Command, CommandError, Confinement, Finished, SandboxMissing
from treadle.sandbox.advice import advice_for
from treadle.sandbox.broker_client import CommandRequest, CommandWatch, Keeper, Session, finished
from treadle.sandbox.bubblewrap import (
    ARGUMENTS_FROM,
    HOME,
    Bubblewrap,
    Features,
    private_places_of_user,
    why_not,
)
from treadle.sandbox.environment import environment
from treadle.sandbox.git_settings import overrides_for, variables_for
from treadle.sandbox.limits import CommandLimits
from treadle.sandbox.output import Output
from treadle.sandbox.seccomp import unconfined_filter, why_no_filter
from treadle.sandbox.toolchains import SYSTEM_PATH, Toolchains, toolchains_of

NOT_INSTALLED = "bubblewrap is not installed: apt-get install bubblewrap"
ONLY_LINUX = "bubblewrap is for Linux; here commands run with the rights of the engine's user"
PROBE_TIMEOUT = 10.0
MOST_WORKSPACES = 64
"""Whose toolchains are remembered."""
BASH = "/bin/bash"

log = logging.getLogger("treadle.sandbox")


class ShellCommands:
    """`bash -lc` for agents. Close it when the engine stops."""

    def __init__(
        self,
        *,
        hidden: Iterable[Path] = (),
        limits: CommandLimits | None = None,
        user: Mapping[str, str] | None = None,
        bubblewrap: str | None = None,
    ) -> None:
        """`hidden` are folders and files that no policy may show: the engine's home. `user` is the environment of
        the user, whose programs commands may use; without it they use those of the system. `bubblewrap` is the
        program (searched for if it is not given)."""
        self._hidden = tuple(dict.fromkeys(place.resolve() for place in hidden))
        self._limits = limits or CommandLimits.of_this_machine()
        self._user = user or {"PATH": SYSTEM_PATH}
        self._toolchains: dict[Path, Toolchains] = {}
        self._program = _found_bubblewrap() if bubblewrap is None else shutil.which(bubblewrap)
        self._shell = BASH if Path(BASH).exists() else shutil.which("bash", path=self._user.get("PATH")) or BASH
        self._keeper = Keeper()
        self._confinement: Confinement | None = None
        self._sandbox = Bubblewrap(Features(), self._limits, self._hidden)
        self._said = False

    async def run(self, command: Command, show: Callable[[str], None]) -> Finished:
        confined = await self._is_confined(command)
        workspace = _as_it_is(command.workspace)
        tools = self._tools_for(workspace)
        overrides = await overrides_for(command.git, workspace, tools.outside)
        request = self._request(command, workspace, confined, tools, variables_for(overrides, command.git))
        output = Output(self._limits.kept_output, show)
        session = Session(self._keeper, output, self._limits.output)
        following = asyncio.create_task(session.follow(request))
        while True:
            try:
                report = await asyncio.shield(following)
                break
            except asyncio.CancelledError:
                if following.cancelled():
                    raise
                session.cancel()
        if report.left:
            log.warning("%d processes of a command could not be ended: %s", report.left, command.text)
        if not report.began and report.ended_by is None:
            raise CommandError(f"The command was not run: {why_not(output.text)}.")
        ended = finished(report, output)
        advice = advice_for(ended, command.policy, self._user.get("PATH", "")) if confined else ""
        return msgspec.structs.replace(ended, advice=advice) if advice else ended

    async def confinement(self) -> Confinement:
        if self._confinement is None:
            self._confinement = await self._probe()
        return self._confinement

    def close(self) -> None:
        """End the keeper process. It is started again if another command comes."""
        self._keeper.close()

    async def _is_confined(self, command: Command) -> bool:
        if command.policy.mode == "off":
            return False
        found = await self.confinement()
        if found.sandbox:
            return True
        if command.policy.mode == "required":
            raise SandboxMissing(found.reason)
        if not self._said:
            self._said = True
            log.warning(
                "Commands run without a sandbox: %s. They can read and write what the engine's user can. "
                "`sandbox: required` refuses to run them.",
                found.reason,
            )
        return False

    # ── What the keeper is told ──

    def _tools_for(self, workspace: Path) -> Toolchains:
        """What commands in a workspace may use, looked for once."""
        if (found := self._toolchains.get(workspace)) is None:
            if len(self._toolchains) >= MOST_WORKSPACES:
                self._toolchains.clear()
            found = self._toolchains[workspace] = toolchains_of(self._user, workspace, self._hidden, HOME)
        return found

    def _request(
        self, command: Command, workspace: Path, confined: bool, tools: Toolchains, git: dict[str, str]
    ) -> CommandRequest:
        try:
            variables = environment(command.environment, tools, HOME, git)
        except ValueError as error:
            raise CommandError(str(error)) from None
        # A login shell takes the path from /etc/profile, which knows nothing of the user's programs.
        line = (self._shell, "-lc", f"export PATH={shlex.quote(tools.path)}; {command.text}")
        if not confined:
            request = self._kept(line, variables, str(workspace), str(workspace), command.timeout)
            denied = () if command.policy.mode == "off" else tuple(map(str, self._hidden))
            return msgspec.structs.replace(request, filter=unconfined_filter() or b"", denied=denied)
        shown = tools.folders
        return self._confined(self._sandbox, line, workspace, command.policy, variables, command.timeout, shown)

    def _confined(
        self,
        sandbox: Bubblewrap,
        line: tuple[str, ...],
        workspace: Path,
        policy: SandboxPolicy,
        variables: dict[str, str],
        timeout: float,
        shown: Sequence[Path] = (),
    ) -> CommandRequest:
        request = self._kept(self._wrapped(line), {}, str(workspace), "/", timeout)
        return msgspec.structs.replace(
            request,
            confined=sandbox.arguments(workspace, policy, variables, shown),
            files=sandbox.copied,
            filter=sandbox.filter,
        )

    def _wrapped(self, line: tuple[str, ...]) -> tuple[str, ...]:
        return (self._program or "", "--args", ARGUMENTS_FROM, "--", *line)

    def _kept(
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
            rlimits=limits.of_processes(timeout),
        )

    # ── Whether there is a sandbox ──

    async def _probe(self) -> Confinement:
        if sys.platform != "linux":
            return Confinement(sandbox=False, reason=ONLY_LINUX)
        if self._program is None:
            return Confinement(sandbox=False, reason=NOT_INSTALLED)
        try:
            (_, told) = await self._tried(self._kept((self._program, "--help"), {}, "/", "/", PROBE_TIMEOUT))
            reason = await self._why_none(Features.read(told))
        except CommandError as error:
            reason = f"bubblewrap cannot be started: {error}"
        unfiltered = "" if self._sandbox.filter else why_no_filter() or "bubblewrap or the kernel cannot filter"
        return Confinement(sandbox=reason is None, reason=reason or "", unfiltered=unfiltered)

    async def _why_none(self, features: Features) -> str | None:
        """Try all features, then fewer: what an old kernel or a container forbids. Return why none works."""
        fewer: tuple[dict[str, bool], ...] = (
            {},
            {"no_nested": False},
            {"filters": False},
            {"no_nested": False, "filters": False},
        )
        tried: list[Features] = []
        reason = None
        for without in fewer:
            chosen = msgspec.structs.replace(features, **without)
            if chosen not in tried:
                tried.append(chosen)
                reason = await self._why_not(chosen)
                if reason is None:
                    return None
        return reason

    async def _why_not(self, features: Features) -> str | None:
        """Run nothing in a sandbox with these features; keep it if that worked."""
        sandbox = Bubblewrap(features, self._limits, self._hidden, private_places_of_user())
        somewhere = _as_it_is(Path("/tmp"))
        line = (self._shell, "-c", "true")
        request = self._confined(sandbox, line, somewhere, SandboxPolicy(), {}, PROBE_TIMEOUT)
        code, told = await self._tried(request)
        if code != 0:
            return why_not(told)
        self._sandbox = sandbox
        return None

    async def _tried(self, request: CommandRequest) -> tuple[int | None, str]:
        output = Output(self._limits.kept_output, lambda text: None)
        report = await Session(self._keeper, output, self._limits.output).follow(request)
        return report.exit_code, output.text


def _as_it_is(workspace: Path) -> Path:
    try:
        return workspace.resolve(strict=True)
    except (OSError, RuntimeError) as error:
        raise CommandError(f"The workspace {str(workspace)!r} cannot be used: {error}.") from None


def _found_bubblewrap() -> str | None:
    return shutil.which("bwrap", path=SYSTEM_PATH)
