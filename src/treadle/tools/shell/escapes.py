"""Commands that change the shell they run in, or whose options make other programs run."""

import re
from collections.abc import Mapping

from treadle.tools.shell.calls import Call
from treadle.tools.shell.words import Word
from treadle.tools.shell.wrappers import SHELLS

_OF_THE_SHELL: Mapping[str, str] = {
    "source": "runs a file in this shell",
    ".": "runs a file in this shell",
    "alias": "changes what a command's name stands for",
    "unalias": "changes what a command's name stands for",
    "trap": "runs a text later",
    "enable": "changes the shell's own commands",
    "bind": "runs a text later",
    "complete": "runs a text later",
    "fc": "runs earlier commands again",
}
_INTERPRETERS = frozenset({"python", "python3", "perl", "ruby", "node", "php", "lua", "Rscript", "osascript"})
_STANDARD_INPUT = ("-", "/dev/stdin", "/dev/fd/0", "/proc/self/fd/0")
_RUN_TEXT = ("-c", "-e", "-m", "-r", "-E", "-p", "--eval", "--print", "-V", "--version", "-h", "--help")
SUBCOMMANDS = frozenset(
    {
        "git", "docker", "podman", "npm", "pnpm", "yarn", "pip", "pip3", "cargo", "go", "kubectl", "systemctl",
        "apt", "apt-get", "brew", "poetry", "uv", "gh", "terraform", "helm", "dotnet", "rustup", "conda", "make",
    }
)  # fmt: skip
"""Programs whose first word says what they do."""
_OPTIONS: Mapping[str, re.Pattern[str]] = {
    "git": re.compile(
        r"^( -C \S+| -\S+)*? (-c|--exec-path|--config-env)([= ]|$)| --(upload-pack|receive-pack|extcmd)"
        r"|^ (bisect run|submodule foreach|filter-branch|difftool|mergetool)\b|^ rebase .*(-x|--exec)"
        r"|^ grep .*(-O|--open-files-in-pager)|ext::"
    ),
    "tar": re.compile(
        r" (--checkpoint-action|--to-command|--use-compress-program|--rsh-command|-I|--info-script|-F)"
    ),
    "rsync": re.compile(r" (-e|--rsh|--rsync-path)"),
    "scp": re.compile(r" -[oS]"),
    "sftp": re.compile(r" -[oS]"),
    "ssh": re.compile(r"(?i)(ProxyCommand|LocalCommand|KnownHostsCommand)| -F"),
    "awk": re.compile(r"system\s*\(|\||getline| -f|print.*>"),
    "sed": re.compile(r"(^| |[;/0-9}'])[ew]( |$)|/[a-zA-Z0-9]*[ew][a-zA-Z0-9]*( |$)| (-i|--in-place)"),
    "sort": re.compile(r" (--compress-program|-o|--output)"),
    "rg": re.compile(r" --(pre|hostname-bin)"),
    "fd": re.compile(r" (-x|-X|--exec)"),
    "man": re.compile(r" (-P|--pager|-H|--html)"),
    "zip": re.compile(r" (-TT|--unzip-command)"),
    "make": re.compile(r" (SHELL|MAKEFLAGS|--eval)\b"),
    "tee": re.compile(r" [^-]"),
    "hash": re.compile(r" -p"),
}
"""With these a program runs others or writes where it otherwise would not."""
_ALSO = {"gawk": "awk", "mawk": "awk", "nawk": "awk", "gsed": "sed", "gmake": "make", "fdfind": "fd"}


def escape_of(call: Call, words: tuple[Word, ...]) -> str | None:
    """Why a command may do more than its words say."""
    program = call.program
    if (why := _OF_THE_SHELL.get(program)) is not None:
        return f"`{program}` {why}"
    if call.fed and _reads_its_program(call):
        return f"`{program}` runs what it reads"
    if program in SUBCOMMANDS and _comes_from_elsewhere(words):
        return f"what `{program}` does comes from an expansion"
    options = _OPTIONS.get(_ALSO.get(program, program))
    if options is not None and options.search(f" {' '.join(call.arguments)}"):
        return f"`{program}` can run other programs or write files with these options"
    return None


def _reads_its_program(call: Call) -> bool:
    """A shell or an interpreter with nothing else to run than its standard input."""
    if call.program in SHELLS:
        return "-s" in call.options or not call.operands or call.operands[0] in _STANDARD_INPUT
    if call.program in _INTERPRETERS or re.fullmatch(r"python[0-9.]+", call.program):
        runs_text = any(word.startswith(_RUN_TEXT) for word in call.options)
        return not runs_text and (not call.operands or call.operands[0] in _STANDARD_INPUT)
    return False


def _comes_from_elsewhere(words: tuple[Word, ...]) -> bool:
    """Whether the word that says what a program does is not in the line."""
    for word in words[1:]:
        if word.dynamic or word.is_glob:
            return True
        if not word.text.startswith("-"):
            return False
    return False
