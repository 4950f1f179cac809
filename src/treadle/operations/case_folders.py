"""The folders in which runs of cases work, in the home, and the commands that check them afterwards."""

import asyncio
import shutil
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Annotated

from msgspec import Meta, Struct

from treadle.domain.agents import AgentSpec
from treadle.domain.errors import InvalidState, UsageError
from treadle.operations.context import Context
from treadle.operations.operation import Operation
from treadle.ports.sandbox import CommandError, EndedBy

FOLDER = ("workspaces", "evaluations")
MAX_SECONDS = 3600
FolderName = Annotated[str, Meta(pattern=r"^[A-Za-z0-9_-]{1,80}(/\.check-[a-f0-9]{16})?$")]


class PrepareFolder(Struct, frozen=True, forbid_unknown_fields=True):
    name: FolderName
    files: dict[str, str] = {}
    """Contents by relative path."""


class PreparedFolder(Struct, frozen=True):
    path: str


class RunCheck(Struct, frozen=True, forbid_unknown_fields=True):
    agent: AgentSpec
    """Its workspace and its sandbox are those of the command."""
    command: str
    seconds: Annotated[float, Meta(gt=0, le=MAX_SECONDS)]


class CheckOutput(Struct, frozen=True):
    output: str
    """Standard output and error, without secrets. If it was too long, the middle is left out."""
    exit_code: int | None
    """Null: it was stopped."""
    ended_by: EndedBy | None = None


class ReadCaseFile(Struct, frozen=True, forbid_unknown_fields=True):
    folder: str
    path: str


class CaseFile(Struct, frozen=True):
    text: str | None
    """Null: there is no such file."""


PREPARE = Operation(
    "local.prepare_case_folder",
    "POST",
    "/v1/local/case-folders",
    scope="admin",
    request=PrepareFolder,
    response=PreparedFolder,
    public=False,
)
CHECK = Operation(
    "local.run_check",
    "POST",
    "/v1/local/case-folders/checks",
    scope="admin",
    request=RunCheck,
    response=CheckOutput,
    public=False,
)
READ = Operation(
    "local.read_case_file",
    "POST",
    "/v1/local/case-folders/files",
    scope="admin",
    request=ReadCaseFile,
    response=CaseFile,
    public=False,
)


@PREPARE.handler
async def prepare_folder(context: Context, request: PrepareFolder) -> PreparedFolder:
    """Create the folder of a run with the files of its case. One that exists is left as it is: its run may have
    started."""
    if context.home is None:
        raise InvalidState("This process serves no home. Use one that does.")
    folder = context.home.joinpath(*FOLDER, request.name)
    await asyncio.to_thread(_write_files, folder, request)
    return PreparedFolder(str(folder))


@CHECK.handler
async def run_check(context: Context, request: RunCheck) -> CheckOutput:
    """Run a command of a check as a command of the agent: in its workspace, and in its sandbox if there is one."""
    try:
        done = await context.run_command(request.agent, request.command, request.seconds)
    except CommandError as error:
        raise UsageError(f"The command was not run: {error}") from None
    return CheckOutput(context.vault.redactor.redact(done.output).text, done.exit_code, done.ended_by)


@READ.handler
async def read_case_file(context: Context, request: ReadCaseFile) -> CaseFile:
    """Read a file that a run of a case may have written. Links to elsewhere are not followed."""
    if context.home is None:
        raise InvalidState("This process serves no home. Use one that does.")
    root = context.home.joinpath(*FOLDER)
    return CaseFile(await asyncio.to_thread(_read_file, root, Path(request.folder), request.path))


def _read_file(root: Path, folder: Path, name: str) -> str | None:
    path = (folder / name).resolve()
    is_inside = folder.resolve().is_relative_to(root.resolve()) and path.is_relative_to(folder.resolve())
    return path.read_text(errors="replace") if is_inside and path.is_file() else None


def _write_files(folder: Path, request: PrepareFolder) -> None:
    """Create the folder at once: another case with the same content may prepare it at the same time."""
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    made = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    try:
        for name, content in request.files.items():
            path = made / name
            if not path.resolve().is_relative_to(made.resolve()):
                raise UsageError(f"The file `{name}` of a case is outside of its workspace. Use a relative path.")
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content)
        with suppress(OSError):  # it exists now
            made.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)
