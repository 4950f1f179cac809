"""Overrides for the settings with which a repository makes git run programs, handed to git in its environment.

`ALWAYS` holds for every git process that a command starts. `overrides_for` adds what can be named only after the
settings of the repository were read: filters, text converters, diff programs. Git before 2.31 ignores all of it."""

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
"""Settings that name a program, or that reach into other repositories, at values that do neither."""
READING: tuple[Setting, ...] = (("core.hooksPath", "/dev/null"), ("diff.ignoreSubmodules", "dirty"))
READING_VARIABLES: Mapping[str, str] = {"GIT_OPTIONAL_LOCKS": "0", "GIT_ALLOW_PROTOCOL": "none"}
"""Reading writes no index, so no hook has a reason to run. It fetches nothing either: a partial clone would fetch
what is missing with the program that its settings name, and no override replaces that one."""
_IDENTITY_TEXTCONV = "cat"
_FAILS = "false"
"""A diff program cannot be switched off by a setting; this one makes git say that it died."""
_SUBMODULE = re.compile(r"(submodule\..*)\.[^.]*", re.DOTALL)
_MOST_SETTINGS = 2000
_TIMEOUT_SECONDS = 10.0


def variables_for(overrides: Iterable[Setting], use: GitUse | None) -> dict[str, str]:
    """Return the environment variables with which git takes these overrides and those that always hold."""
    settings = [*ALWAYS, *(READING if use is not None and use.reads_only else ()), *overrides]
    variables = {**VARIABLES, "GIT_CONFIG_COUNT": str(len(settings))}
    if use is not None and use.reads_only:
        variables |= READING_VARIABLES
    for index, (name, value) in enumerate(settings):
        variables[f"GIT_CONFIG_KEY_{index}"] = name
        variables[f"GIT_CONFIG_VALUE_{index}"] = value
    return variables


_READING_ENVIRONMENT = {
    "PATH": "/usr/bin:/bin",
    "HOME": "/nonexistent",
    "LC_ALL": "C.UTF-8",
    **variables_for((), GitUse(reads_only=True)),
}


async def overrides_for(use: GitUse | None, workspace: Path, path: str) -> tuple[Setting, ...]:
    """Return overrides for the programs that the settings of the repositories in use name.

    Raises CommandError where those settings cannot be read."""
    program = None if use is None else shutil.which("git", path=path)
    if use is None or program is None:
        return ()
    found: dict[str, str] = {}
    for folder in use.folders:
        place = workspace / folder
        if place.is_dir():
            names = await _names(program, place, "--list", "--includes")
            submodules = await _submodule_names(program, place) if use.reads_only else set[str]()
            found |= _overrides(names | submodules, use.reads_only)
    if len(found) > _MOST_SETTINGS:
        raise CommandError(
            f"The command was not run: the repository names more than {_MOST_SETTINGS} programs in its settings. "
            f"Check its .git/config."
        )
    return tuple(found.items())


def _overrides(names: Iterable[str], reads_only: bool) -> dict[str, str]:
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
            case "filter", _ if reads_only:
                driver = name.rpartition(".")[0]
                found |= {f"{driver}.clean": "", f"{driver}.smudge": "", f"{driver}.process": ""}
                found[f"{driver}.required"] = "false"
            case "submodule", _ if reads_only and (submodule := _SUBMODULE.fullmatch(name)):
                found[f"{submodule[1]}.ignore"] = "dirty"
            case _:
                pass
    return found


async def _submodule_names(program: str, folder: Path) -> set[str]:
    """Return the settings in `.gitmodules`, which git takes from the first of these places that has it."""
    found = set[str]()
    top = await _run(program, folder, "rev-parse", "--show-toplevel")
    if top is not None and (Path(top.rstrip("\n")) / ".gitmodules").is_file():
        file = str(Path(top.rstrip("\n")) / ".gitmodules")
        found |= await _names(program, folder, "--file", file, "--list")
    for blob in (":.gitmodules", "HEAD:.gitmodules"):
        listed = await _run(program, folder, "config", "--name-only", "-z", "--blob", blob, "--list")
        found |= set(filter(None, (listed or "").split("\0")))
    return found


async def _names(program: str, folder: Path, *arguments: str) -> set[str]:
    listed = await _run(program, folder, "config", "--name-only", "-z", *arguments)
    if listed is None:
        raise CommandError(
            f"The command was not run: git cannot read the settings of the repository in {str(folder)!r}. "
            f"Fix its .git/config and .gitmodules."
        )
    return set(filter(None, listed.split("\0")))


async def _run(program: str, folder: Path, *arguments: str) -> str | None:
    """Return what git prints, or None where it fails. These verbs run nothing that a repository names."""
    process = await asyncio.create_subprocess_exec(
        program,
        "-C",
        str(folder),
        *arguments,
        cwd="/",
        env=_READING_ENVIRONMENT,
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
