"""Overrides for the settings with which a repository makes git run programs, passed to git in its environment.

`ALWAYS` applies to every git process of a command. `read_git_overrides` adds settings whose names depend on the
repository: filters, text converters, diff programs. Git before 2.31 ignores all of them."""

import asyncio
import contextlib
import re
import shutil
from collections.abc import Iterable, Mapping
from pathlib import Path

from treadle.ports.sandbox import CommandError, GitUse

Setting = tuple[str, str]

VARIABLES: Mapping[str, str] = {
    "GIT_SEQUENCE_EDITOR": "false",
    "GIT_PROXY_COMMAND": "",
    "GIT_ALLOW_PROTOCOL": "file:git:http:https:ssh",
    "GIT_NO_LAZY_FETCH": "1",
}
ALWAYS: tuple[Setting, ...] = (
    ("core.fsmonitor", "false"),
    ("core.pager", "cat"),
    ("core.askPass", "false"),
    ("core.sshCommand", "ssh"),
    ("gpg.program", "gpg"),
    ("gpg.openpgp.program", "gpg"),
    ("gpg.x509.program", "gpgsm"),
    ("gpg.ssh.program", "ssh-keygen"),
    ("gpg.ssh.defaultKeyCommand", ""),
    ("log.showSignature", "false"),
    ("safe.bareRepository", "explicit"),
    ("protocol.ext.allow", "never"),
    ("submodule.recurse", "false"),
    ("fetch.recurseSubmodules", "false"),
    ("diff.submodule", "short"),
    ("status.submoduleSummary", "false"),
    ("gc.auto", "0"),
    ("maintenance.auto", "false"),
)
"""Settings that could name a program or reach into other repositories, set to harmless values."""
READ_ONLY_SETTINGS: tuple[Setting, ...] = (("core.hooksPath", "/dev/null"), ("diff.ignoreSubmodules", "dirty"))
READ_ONLY_VARIABLES: Mapping[str, str] = {"GIT_OPTIONAL_LOCKS": "0", "GIT_ALLOW_PROTOCOL": "none"}
"""Reading writes no index, so no hook needs to run. It also fetches nothing: a partial clone would fetch missing
objects with the program that its settings name, and no override replaces that one."""
_IDENTITY_TEXTCONV = "cat"
_FAILS = "false"
"""A diff program cannot be disabled by a setting; this one makes git report that it died."""
_NO_FOLDERS: Setting = ("protocol.file.allow", "never")
"""Where a repository names programs for its remotes, nothing is transferred from or to folders: git would run the
programs on this machine, and uses the first setting of such a name, so no override replaces it."""
_SUBMODULE = re.compile(r"(submodule\..*)\.[^.]*", re.DOTALL)
_MAX_SETTINGS = 2000
_TIMEOUT_SECONDS = 10.0


def build_git_variables(overrides: Iterable[Setting], use: GitUse | None) -> dict[str, str]:
    """Return the environment variables that pass these overrides and `ALWAYS` to git."""
    settings = [*ALWAYS, *(READ_ONLY_SETTINGS if use is not None and use.reads_only else ()), *overrides]
    variables = {**VARIABLES, "GIT_CONFIG_COUNT": str(len(settings))}
    if _NO_FOLDERS in settings:
        variables["GIT_ALLOW_PROTOCOL"] = "git:http:https:ssh"
    if use is not None and use.reads_only:
        variables |= READ_ONLY_VARIABLES
    for index, (name, value) in enumerate(settings):
        variables[f"GIT_CONFIG_KEY_{index}"] = name
        variables[f"GIT_CONFIG_VALUE_{index}"] = value
    return variables


_READ_ONLY_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/nonexistent",
    "LC_ALL": "C.UTF-8",
    **build_git_variables((), GitUse(reads_only=True)),
}


async def read_git_overrides(use: GitUse | None, workspace: Path, path: str) -> tuple[Setting, ...]:
    """Return overrides for the programs named in the settings of the repositories in use.

    Raise CommandError if the settings cannot be read."""
    program = None if use is None else shutil.which("git", path=path)
    if use is None or program is None:
        return ()
    found: dict[str, str] = {}
    for folder in use.folders:
        place = workspace / folder
        if place.is_dir():
            names = await _list_setting_names(program, place, "--list", "--includes")
            submodules = await _list_submodule_names(program, place) if use.reads_only else set[str]()
            found |= _build_overrides(names | submodules, use.reads_only)
    if len(found) > _MAX_SETTINGS:
        raise CommandError(
            f"The command was not run: the repository names more than {_MAX_SETTINGS} programs in its settings. "
            f"Check its .git/config."
        )
    return tuple(found.items())


def _build_overrides(names: Iterable[str], reads_only: bool) -> dict[str, str]:
    found: dict[str, str] = {}
    for name in names:
        section, _, rest = name.partition(".")
        last = rest.rpartition(".")[2]
        match section, last:
            case "diff", "textconv":
                found[name] = _IDENTITY_TEXTCONV
            case "diff", "external" | "command":
                found[name] = _FAILS
            case "core", "alternaterefscommand":
                found[name] = _FAILS
            case "remote", "uploadpack" | "receivepack":
                found |= [_NO_FOLDERS]
            case "filter", _ if reads_only:
                driver = name.rpartition(".")[0]
                found |= {f"{driver}.clean": "", f"{driver}.smudge": "", f"{driver}.process": ""}
                found[f"{driver}.required"] = "false"
            case "submodule", _ if reads_only and (submodule := _SUBMODULE.fullmatch(name)):
                found[f"{submodule[1]}.ignore"] = "dirty"
            case _:
                pass
    return found


async def _list_submodule_names(program: str, folder: Path) -> set[str]:
    """Return the settings in `.gitmodules`, from all places where git looks for it."""
    found = set[str]()
    top = await run_git(program, folder, "rev-parse", "--show-toplevel")
    if top is not None and (Path(top.rstrip("\n")) / ".gitmodules").is_file():
        file = str(Path(top.rstrip("\n")) / ".gitmodules")
        found |= await _list_setting_names(program, folder, "--file", file, "--list")
    for blob in (":.gitmodules", "HEAD:.gitmodules"):
        listed = await run_git(program, folder, "config", "--name-only", "-z", "--blob", blob, "--list")
        found |= set(filter(None, (listed or "").split("\0")))
    return found


async def _list_setting_names(program: str, folder: Path, *arguments: str) -> set[str]:
    listed = await run_git(program, folder, "config", "--name-only", "-z", *arguments)
    if listed is None:
        raise CommandError(
            f"The command was not run: git cannot read the settings of the repository in {str(folder)!r}. "
            f"Fix its .git/config and .gitmodules."
        )
    return set(filter(None, listed.split("\0")))


async def run_git(program: str, folder: Path, *arguments: str) -> str | None:
    """Return what git prints, or None if it fails. These git commands run no programs of the repository."""
    process = await asyncio.create_subprocess_exec(
        program,
        "-C",
        str(folder),
        *arguments,
        cwd="/",
        env=_READ_ONLY_ENVIRONMENT,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with asyncio.timeout(_TIMEOUT_SECONDS):
            output, _ = await process.communicate()
    except TimeoutError:
        output = b""
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    return output.decode("utf-8", "surrogateescape") if process.returncode == 0 else None
