"""Commands that change the shell they run in, or whose options make other programs run."""

import posixpath
import re
from collections.abc import Mapping
from itertools import pairwise

from treadle.tools.shell import git, sed
from treadle.tools.shell.program_risks import canonical_name
from treadle.tools.shell.risks import find_table, is_listed
from treadle.tools.shell.simple_commands import SimpleCommand
from treadle.tools.shell.variable_builtins import may_be_an_option
from treadle.tools.shell.words import Word
from treadle.tools.shell.wrappers import SHELLS, shell_operands

_SHELL_BUILTINS: Mapping[str, str] = {
    "source": "runs a file in this shell",
    ".": "runs a file in this shell",
    "alias": "changes what a command's name stands for",
    "unalias": "changes what a command's name stands for",
    "trap": "runs a text later",
    "enable": "changes the shell's own commands",
    "bind": "runs a text later",
    "complete": "runs a text later",
    "compgen": "runs a text",
    "fc": "runs earlier commands again",
}
_RUNS_ANOTHER_PROGRAM = frozenset(
    {
        "unshare", "nsenter", "setpriv", "setarch", "linux32", "linux64", "i386", "i686", "x86_64", "uname26",
        "prlimit", "choom", "sg", "newgrp", "ssh-agent", "run-parts", "capsh", "catchsegv", "ltrace", "valgrind",
        "perf", "faketime", "proxychains", "proxychains4", "torsocks", "tsocks", "rlwrap", "eatmydata",
        "fakechroot", "firejail", "bwrap", "numactl", "cgexec", "systemd-run", "systemd-inhibit",
        "dbus-run-session", "dbus-launch", "xvfb-run", "gosu", "su-exec", "tini", "dumb-init", "setuidgid",
        "softlimit", "chpst",
        "hyperfine", "entr", "at", "batch", "start-stop-daemon", "daemonize", "daemon", "expect", "socat", "pkexec",
        "runcon", "sem", "lxc-attach", "lxc-execute", "machinectl", "inotifywait", "direnv", "sshpass", "autossh",
    }
)  # fmt: skip
"""Programs that run the program named by their arguments, and are not analysed."""
_LOADER = re.compile(r"ld\.so|ld-(linux|musl|[0-9]).*|git-.+|busybox[-.].*")
"""Loaders, git subcommands as separate programs, and builds of busybox under other names."""
_STANDARD_FOLDER = re.compile(r"/+(usr/+)?(local/+)?s?bin(/.*)?")
_PLACES_FILES = frozenset({"cp", "mv", "ln", "install", "rsync", "link", "dd", "rename"})
_FED_PROGRAMS = re.compile(r"/dev/(stdin|fd/[0-9]+)|/proc/[^/]+/(task/[^/]+/)?fd/[0-9]+|-")
_HARMLESS_SET = re.compile(r"[-+][euxvfCbhETn]+")
_HARMLESS_SET_NAMES = frozenset(
    {"errexit", "nounset", "pipefail", "xtrace", "verbose", "noglob", "noclobber", "errtrace", "functrace"}
)
_HARMLESS_SHOPT = frozenset(
    {"nullglob", "globstar", "dotglob", "nocaseglob", "failglob", "extglob", "inherit_errexit", "lastpipe",
     "nocasematch", "-s", "-u", "-q", "-p"}
)  # fmt: skip
_INTERPRETERS = frozenset({"python", "python3", "perl", "ruby", "node", "php", "lua", "Rscript", "osascript"})
_RUN_TEXT = ("-c", "-e", "-m", "-r", "-E", "-p", "--eval", "--print", "-V", "--version", "-h", "--help")
_PYTHON = re.compile(r"python[0-9.]*")
SUBCOMMANDS = frozenset(
    {
        "git", "docker", "podman", "npm", "pnpm", "yarn", "pip", "pip3", "cargo", "go", "kubectl", "systemctl",
        "apt", "apt-get", "brew", "poetry", "uv", "gh", "terraform", "helm", "dotnet", "rustup", "conda", "make",
    }
)  # fmt: skip
"""Programs whose first argument says what they do."""


def find_escape(call: SimpleCommand, words: tuple[Word, ...]) -> str | None:
    """Return why a command may do more than its words say, or None."""
    program = call.program
    if (why := _SHELL_BUILTINS.get(program)) is not None:
        return f"`{program}` {why}"
    if program in _RUNS_ANOTHER_PROGRAM or _LOADER.fullmatch(program):
        return f"`{program}` runs another program"
    if program in _PLACES_FILES and any(
        _STANDARD_FOLDER.fullmatch(_target_path(word)) for word in call.arguments[1:]
    ):
        return f"`{program}` may put a program where programs are looked for"
    if _reads_its_program(call):
        return f"`{program}` runs what it reads"
    if program in SUBCOMMANDS and _verb_is_dynamic(words):
        return f"what `{program}` does comes from an expansion"
    if _options_are_hidden(program, words):
        return f"what `{program}` does comes from an expansion"
    return None


def _target_path(word: str) -> str:
    return posixpath.normpath(word.removeprefix("of=").partition("=")[2] or word.removeprefix("of="))


def _options_are_hidden(program: str, words: tuple[Word, ...]) -> bool:
    """Return whether an expansion may turn out to be an option that would need approval."""
    name = canonical_name(program)
    rest = words[1:]
    if name in ("sed", "awk"):
        return any(word.dynamic for before, word in pairwise(words) if before.text != "-v")
    if name == "git":
        verb = next((word.text for word in rest if not word.text.startswith("-")), "")
        if verb in git.VERBS_WITHOUT_ESCAPES:
            return False
    elif name == "find":
        rest = tuple(word for before, word in pairwise(words) if not before.text.startswith("-"))
    elif not (is_listed(name) and find_table(name).has_escapes):
        return False
    end = next((index for index, word in enumerate(rest) if word.text == "--"), len(rest))
    return any(may_be_an_option(word) for word in rest[:end])


def find_option_escape(call: SimpleCommand) -> str | None:
    """Return why options of a command may run other programs or write files, or None."""
    if not _escapes_by_options(call.program, call.arguments):
        return None
    return f"`{call.program}` can run other programs or write files with these options"


def _escapes_by_options(program: str, arguments: tuple[str, ...]) -> bool:
    match canonical_name(program):
        case "git":
            return git.exceeds_verb(arguments)
        case "sed":
            return not sed.only_prints(arguments)
        case "set":
            return not all(_sets_harmlessly(arguments, index) for index in range(len(arguments)))
        case "shopt":
            return not _HARMLESS_SHOPT.issuperset(arguments)
        case "mapfile" | "readarray":
            return any(word.startswith("-") and "C" in word for word in arguments)
        case name:
            return is_listed(name) and find_table(name).escapes(arguments)


def _sets_harmlessly(arguments: tuple[str, ...], index: int) -> bool:
    """Return whether a word of `set` is harmless. Nothing after `--` is an option."""
    word = arguments[index]
    if "--" in arguments[:index] or word == "--":
        return True
    if index and arguments[index - 1].endswith("o") and arguments[index - 1][0] in "-+":
        return word in _HARMLESS_SET_NAMES
    return _HARMLESS_SET.fullmatch(word.removesuffix("o") if word[0] in "-+" else word) is not None or word in (
        "-o", "+o"
    )  # fmt: skip


def _reads_its_program(call: SimpleCommand) -> bool:
    """Return whether a shell or an interpreter runs what it reads, having nothing else to run."""
    if call.program in SHELLS:
        operands = shell_operands(call.arguments)
        return (call.fed and not operands) or bool(operands and _is_fed(operands[0]))
    if _PYTHON.fullmatch(call.program):
        return _python_reads(call)
    if call.program in _INTERPRETERS:
        runs_text = any(word.startswith(_RUN_TEXT) for word in call.options)
        return call.fed and not runs_text and (not call.operands or _is_fed(call.operands[0]))
    return call.fed and call.program in ("script", "su", "runuser")


def _is_fed(path: str) -> bool:
    plain = posixpath.normpath(path).replace("//", "/")
    return _FED_PROGRAMS.fullmatch(plain) is not None


def _python_reads(call: SimpleCommand) -> bool:
    rest = list(call.arguments)
    while rest and rest[0].startswith("-") and len(rest[0]) > 1:
        letters = rest.pop(0)
        if letters.startswith(("--", "-h", "-V")):
            return False
        if "i" in letters and call.fed:
            return True
        if "c" in letters or "m" in letters:
            return False
        if letters[-1] in "WX":
            del rest[:1]
    return (call.fed and not rest) or bool(rest and _is_fed(rest[0]) and (call.fed or rest[0] != "-"))


def _verb_is_dynamic(words: tuple[Word, ...]) -> bool:
    """Return whether the word that says what a program does comes from an expansion."""
    for word in words[1:]:
        if word.dynamic or word.is_glob:
            return True
        if not word.text.startswith("-"):
            return False
    return False
