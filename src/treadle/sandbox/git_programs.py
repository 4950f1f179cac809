"""Settings of git that name programs, and their removal from the settings of a repository.

A command in the sandbox may change `.git/config`. What it adds there must not make git run programs later, outside
of the sandbox."""

import os
import re
import stat
import tempfile
from collections.abc import Callable, Coroutine, Sequence
from contextlib import suppress
from fnmatch import fnmatchcase
from pathlib import Path

from msgspec import Struct

RunGit = Callable[..., Coroutine[None, None, str | None]]
"""Runs git with these arguments and returns what it prints, or None if it fails."""
Programs = dict[str, tuple[str, ...]]
"""The values of each setting that names programs."""
MAX_BYTES = 2**22

PROGRAMS = (
    "core.hookspath", "core.sshcommand", "core.pager", "core.editor", "core.askpass", "core.gitproxy",
    "core.alternaterefscommand", "core.fsmonitor", "sequence.editor", "filter.*.clean", "filter.*.smudge",
    "filter.*.process", "diff.external", "diff.*.command", "diff.*.textconv", "merge.*.driver", "mergetool.*.cmd",
    "mergetool.*.path", "difftool.*.cmd", "difftool.*.path", "browser.*.cmd", "browser.*.path", "web.browser",
    "man.*.cmd", "man.*.path", "guitool.*.cmd", "interactive.difffilter", "pager.*", "credential.helper",
    "credential.*.helper", "gpg.program", "gpg.*.program", "gpg.ssh.defaultkeycommand", "include.path",
    "includeif.*.path", "remote.*.uploadpack", "remote.*.receivepack", "remote.*.vcs", "protocol.allow",
    "protocol.*.allow", "uploadpack.packobjectshook", "trailer.*.command", "trailer.*.cmd", "sendemail.*cmd",
    "sendemail.*.*cmd", "sendemail.smtpserver", "sendemail.*.smtpserver", "imap.tunnel", "imap.*.tunnel",
    "init.templatedir", "tar.*.command", "hook.*.command", "lfs.customtransfer.*.path", "lfs.*.clean",
    "lfs.*.smudge", "lfs.standalonetransferagent", "lfs.*.standalonetransferagent", "instaweb.httpd",
    "instaweb.browser", "submodule.*.update", "alias.*", "url.*.insteadof", "url.*.pushinsteadof", "remote.*.url",
    "remote.*.pushurl",
)  # fmt: skip
"""Names of settings with which git runs a program, reads other settings, or uses another folder. Sections and last
names are compared without case, as git does."""
_SWITCHES = frozenset({"true", "false", "yes", "no", "on", "off", "0", "1", ""})
_HELPER = re.compile(r"[A-Za-z0-9]+::")
"""A remote address for a helper program, such as `ext::sh -c …`."""


class GitSetting(Struct, frozen=True):
    name: str
    value: str


def is_program_setting(setting: GitSetting) -> bool:
    """Return whether git may run a program that a setting names, or that its value leads to."""
    name, value = setting.name.lower(), setting.value.strip()
    if not any(fnmatchcase(name, pattern) for pattern in PROGRAMS):
        return False
    match name.split(".")[0], name.rpartition(".")[2]:
        case ("core", "fsmonitor") | ("pager", _):
            return value.lower() not in _SWITCHES
        case ("alias", _) | ("submodule", "update"):
            return value.startswith(("!", "-"))
        case ("protocol", "allow"):
            return value.lower() != "never"
        case ("remote", "url" | "pushurl") | ("url", _):
            address = name.removeprefix("url.") if name.startswith("url.") else value
            return _HELPER.match(address) is not None
        case _:
            return True


def read_settings(listed: str) -> tuple[GitSetting, ...]:
    """Return the settings that `git config --list -z` prints."""
    pairs = (entry.partition("\n") for entry in listed.split("\0") if entry)
    return tuple(GitSetting(name, value if newline else "true") for name, newline, value in pairs)


def read_settings_file(path: str) -> bytes | None:
    """Return the content of a settings file, or None if there is no regular file."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return None
    with open(descriptor, "rb") as file:
        return file.read(MAX_BYTES) if stat.S_ISREG(os.fstat(descriptor).st_mode) else None


async def remove_added_programs(path: str, before: bytes | None, run_git: RunGit) -> tuple[GitSetting, ...]:
    """Remove the settings that name programs and were not in a file before, and restore those that were. Return
    what was removed.

    Git works on a copy: the file itself may lead elsewhere by now."""
    now = read_settings_file(path)
    if now == before or (now is None and not _is_link(path)):
        return ()
    if now is None:
        _replace(path, before or b"")
        return (GitSetting("the file", "replaced by a link"),)
    with tempfile.TemporaryDirectory(prefix="treadle-git-") as folder:
        copy = Path(folder) / "config"
        earlier = await _list_programs(copy, before or b"", run_git) or {}
        later = await _list_programs(copy, now, run_git)
        if later is None:  # git cannot read it, so it cannot be checked
            _replace(path, before or b"")
            return (GitSetting("the file", "not valid"),)
        removed = [
            GitSetting(name, value) for name in later for value in later[name] if value not in earlier.get(name, ())
        ]
        if removed:
            cleaned = await _restore_programs(copy, earlier, later, run_git)
            _replace(path, before or b"" if cleaned is None else cleaned)
    return tuple(removed)


async def _restore_programs(copy: Path, earlier: Programs, later: Programs, run_git: RunGit) -> bytes | None:
    """Return the content of a settings file with the programs that it had before, or None if git cannot do that."""
    for name in {*earlier, *later}:
        if earlier.get(name, ()) != later.get(name, ()):
            await run_git("config", "--file", str(copy), "--unset-all", name)
            for value in earlier.get(name, ()):
                await run_git("config", "--file", str(copy), "--add", name, value)
    content = _read(copy)
    return content if await _list_programs(copy, content, run_git) == earlier else None


async def _list_programs(copy: Path, content: bytes, run_git: RunGit) -> Programs | None:
    """Return the values of each setting that names programs, or None if git cannot read the content."""
    _write(copy, content)
    listed = await run_git("config", "--file", str(copy), "--no-includes", "--list", "-z")
    if listed is None:
        return None
    found: Programs = {}
    for setting in filter(is_program_setting, read_settings(listed)):
        found[setting.name] = (*found.get(setting.name, ()), setting.value)
    return found


def _is_link(path: str) -> bool:
    return os.path.islink(path)


def _read(copy: Path) -> bytes:
    return copy.read_bytes()


def _write(copy: Path, content: bytes) -> None:
    copy.write_bytes(content)


def _replace(path: str, content: bytes) -> None:
    """Replace a settings file, also if it is a link now. Do nothing if its folder leads elsewhere by now."""
    folder = os.path.dirname(path)
    with suppress(OSError):
        if os.path.realpath(folder) != folder:
            return
        descriptor, temporary = tempfile.mkstemp(prefix=".config-", dir=folder)
        with open(descriptor, "wb") as file:
            file.write(content)
            os.fchmod(descriptor, 0o644)
        os.replace(temporary, path)


def describe_removed(path: str, removed: Sequence[GitSetting]) -> str:
    """Return a sentence about settings that were removed from a file."""
    names = ", ".join(f"{each.name} ({each.value[:80]})" for each in removed)
    return (
        f"Removed from {path} after this command: {names}. Git would run programs with such settings, outside the "
        f"sandbox. Only the user can add them."
    )
