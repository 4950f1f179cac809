"""Keeps the files that other programs execute as they are while a command runs, and inspects them afterwards."""

import asyncio
import os
import shutil
from collections.abc import Sequence
from functools import partial
from pathlib import Path

import msgspec

from treadle.domain.executed_files import find_executed_file
from treadle.domain.permissions import SandboxPolicy
from treadle.domain.writable_places import EnginePlaces
from treadle.sandbox.executed_scan import ExecutedScan, ExecutedScanner, is_inside
from treadle.sandbox.git_programs import describe_removed, remove_added_programs
from treadle.sandbox.git_settings import run_git
from treadle.sandbox.linked_packages import LinkedPackages

MAX_LISTED = 10


class ExecutedGuard:
    """The files in the writable folders of commands that other programs execute."""

    def __init__(self, engine: EnginePlaces, hidden: Sequence[Path]) -> None:
        self._engine = engine
        self._hidden = tuple(map(str, hidden))
        self._scanner = ExecutedScanner()
        self._linked = LinkedPackages(engine.code)

    async def scan(self, workspace: Path, policy: SandboxPolicy) -> ExecutedScan:
        """Return the files in the folders that commands can write."""
        return await asyncio.to_thread(self._scan, str(workspace), policy)

    def _scan(self, workspace: str, policy: SandboxPolicy) -> ExecutedScan:
        named = [os.path.realpath(os.path.expanduser(name)) for name in policy.writable]
        roots = tuple(dict.fromkeys((workspace, *named)))
        inside = [place for root in roots for place in self._engine.list_inside(root)]
        found = self._scanner.scan(roots, (*inside, *self._hidden))
        self._linked.separate(roots, found.environments)
        if not policy.read_only:
            return found
        kept = [os.path.realpath(os.path.join(workspace, path)) for path in policy.read_only]
        existing = [place for place in kept if is_inside(place, roots) and os.path.exists(place)]
        return msgspec.structs.replace(found, read_only=(*found.read_only, *existing))

    async def inspect(
        self, before: ExecutedScan, workspace: Path, policy: SandboxPolicy, path: str
    ) -> tuple[str, ...]:
        """Remove the programs that a command added to settings of git. Return sentences about that, and about files
        that it created or replaced. `path` is the search path for git."""
        after = await self.scan(workspace, policy)
        findings: list[str] = []
        program = shutil.which("git", path=path)
        for file in after.settings:
            earlier = before.settings.get(file)
            if after.settings[file] != earlier or _is_link(file):
                removed = await remove_added_programs(file, earlier, partial(_run_git, program))
                if removed:
                    findings.append(describe_removed(_shorten(file, workspace), removed))
        if created := after.list_new(before):
            findings.append(_describe_created(created, workspace))
        return tuple(findings)


async def _run_git(program: str | None, *arguments: str) -> str | None:
    return None if program is None else await run_git(program, Path("/"), *arguments)


def _is_link(path: str) -> bool:
    return os.path.islink(path)


def _describe_created(created: Sequence[str], workspace: Path) -> str:
    shown = [f"{_shorten(path, workspace)} ({_name_executor(path)})" for path in created[:MAX_LISTED]]
    more = f" and {len(created) - MAX_LISTED} more" if len(created) > MAX_LISTED else ""
    return (
        f"This command created or replaced files that other programs execute later, outside the sandbox: "
        f"{', '.join(shown)}{more}. Tell the user to check them."
    )


def _name_executor(path: str) -> str:
    found = find_executed_file(path)
    return "git" if found is None else found.by


def _shorten(path: str, workspace: Path) -> str:
    return path.removeprefix(f"{workspace}/")
