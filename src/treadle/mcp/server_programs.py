"""Makes the program of a stdio server: its command line, its rights, its start folder, and the code that it may
load.

Every start passes here: calls of runs and sub-agents, tests, approvals and sign-ins."""

import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Protocol

from treadle.domain.mcp_servers import Consent
from treadle.domain.permissions import SandboxPolicy
from treadle.domain.writable_places import WritablePlaces, is_within
from treadle.mcp.pins import PinnedContent
from treadle.mcp.server_target import ServerTarget
from treadle.mcp.start_rules import explain_invalid_start, explain_privilege, insert_workspace, needs_write_consent
from treadle.ports.sandbox import CommandError, Contents, Program, Programs, WritableCode

ELSEWHERE = (
    "Install it in a folder that no agent works in (`uv tool install`, `npm install --prefix ~/.local/share/mcp`)"
)


class PlacesOfRuns(Protocol):
    """What the runs of a home can write."""

    def find_writable(self, workspace: Path, policy: SandboxPolicy) -> WritablePlaces:
        """Return what a run with these rights in this workspace can write, and what all other runs can."""
        ...

    def list_server_folders(self) -> tuple[str, ...]:
        """Return the folders that the entries of servers make writable: their tools write there for a run."""
        ...


class ServerPrograms:
    """Checks and makes the programs of servers."""

    def __init__(self, programs: Programs, places: PlacesOfRuns | None, contents: Contents | None) -> None:
        self._programs = programs
        self._places = places
        self._contents = contents

    async def prepare(
        self, target: ServerTarget, resolve: Callable[[Mapping[str, str]], dict[str, str]]
    ) -> Program:
        """Return the program of a server, with its secrets. Raise CommandError if it must not be started."""
        program = self._make_program(target)
        _check_consent(target, self._find_places(target, target.policy))
        found = await self._programs.find_writable_code(program)
        for code in found:
            if not any(is_within(code.path, content.place) for content in target.contents):
                raise CommandError(explain_writable_code(code, target))
        if target.contents and target.access != "none":
            raise CommandError(
                f"code that is pinned by content cannot be used with `workspace: {target.access}`: other code of "
                f"the workspace could be loaded with it; say `workspace: none`, or install it elsewhere"
            )
        copies = {content.place: await self._find_copy(content, target) for content in target.contents}
        arguments = resolve({str(number): word for number, word in enumerate(program.argv[1:])})
        return Program(
            argv=(program.argv[0], *arguments.values()),
            workspace=program.workspace,
            policy=program.policy,
            environment=resolve(program.environment),
            folder=program.folder,
            access=program.access,
            avoided=program.avoided,
            copies=copies,
        )

    async def pin_contents(self, target: ServerTarget) -> tuple[PinnedContent, ...]:
        """Copy the code of a server that a run could change, and return what to pin. Raise CommandError if it
        cannot be pinned."""
        units: set[str] = set()
        for code in await self._programs.find_writable_code(self._make_program(target)):
            if code.unit is None or self._contents is None:
                raise CommandError(explain_writable_code(code, target))
            units.add(code.unit)
        outer = sorted(unit for unit in units if not any(is_within(unit, each) for each in units - {unit}))
        return tuple([PinnedContent(unit, await self._contents.keep(unit)) for unit in outer if self._contents])

    def _make_program(self, target: ServerTarget) -> Program:
        """Return the program without its secrets. Raise CommandError if its entry is not valid."""
        server, workspace = target.server, str(target.workspace)
        if reason := explain_invalid_start(server):
            raise CommandError(reason)
        places = self._find_places(target, self._widen(target))
        return Program(
            argv=(server.command or "", *(insert_workspace(word, workspace) for word in server.args)),
            workspace=target.workspace,
            policy=target.rights,
            environment={name: insert_workspace(value, workspace) for name, value in server.env.items()},
            folder="private" if server.cwd is None else _resolve_cwd(server.cwd, places),
            access=target.access,
            avoided=places,
        )

    def _widen(self, target: ServerTarget) -> SandboxPolicy:
        """Return the rights of a run with what it can write through the tools of servers."""
        of_servers = () if self._places is None else self._places.list_server_folders()
        return SandboxPolicy(writable=(*target.policy.writable, *target.server.writable, *of_servers))

    def _find_places(self, target: ServerTarget, policy: SandboxPolicy) -> WritablePlaces:
        if self._places is None:
            folders = (str(target.workspace), *policy.writable)
            return WritablePlaces(tuple(os.path.realpath(os.path.expanduser(each)) for each in folders))
        return self._places.find_writable(target.workspace, policy)

    async def _find_copy(self, content: PinnedContent, target: ServerTarget) -> str:
        """Return the private copy of pinned code, if the code is still the same."""
        if self._contents is None:
            raise CommandError("code that is pinned by content cannot be used here")
        is_same = await self._contents.measure(content.place) == content.digest
        if is_same and self._contents.find(content.digest) is None:
            is_same = await self._contents.keep(content.place) == content.digest
        copy = self._contents.find(content.digest)
        if not is_same or copy is None:
            raise CommandError(
                f"{content.place} has changed since it was approved; check it, then approve it again: "
                f"{target.advice.tell(Consent(content=True))}"
            )
        return copy


def explain_writable_code(code: WritableCode, target: ServerTarget) -> str:
    """Return why code is refused, and what to do."""
    pin = "" if code.unit is None else f", or pin its content: {target.advice.tell(Consent(content=True))}"
    return (
        f"{code.role} is in {code.path}, which a run can write and so change what the server does. {ELSEWHERE}{pin}"
    )


def _check_consent(target: ServerTarget, places: WritablePlaces) -> None:
    """Raise CommandError if a program has secrets or the network, may write what a run can write, and this was not
    approved."""
    server = target.server
    privilege = explain_privilege(server)
    if target.allows_write or not privilege:
        return
    if needs_write_consent(server):
        raise CommandError(
            f"it may write the workspace and has {privilege}. "
            f"Approve that: {target.advice.tell(Consent(write=True))}"
        )
    for name in server.writable:
        folder = os.path.realpath(os.path.expanduser(name))
        if any(is_within(folder, each) or is_within(each, folder) for each in places.folders):
            raise CommandError(
                f"it may write {name}, which a run can write too, and has {privilege}. "
                f"Approve that: {target.advice.tell(Consent(write=True))}"
            )


def _resolve_cwd(cwd: str, places: WritablePlaces) -> Path:
    path = os.path.realpath(os.path.expanduser(cwd))
    if places.includes(path) or any(is_within(each, path) and places.includes(each) for each in places.folders):
        raise CommandError(
            f"its `cwd` {cwd} is a folder that a run can write, or contains one; "
            f"remove `cwd`, or name another folder"
        )
    return Path(path)
