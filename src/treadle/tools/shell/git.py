"""What a call of `git` does beyond its words: its own options, settings and many commands make it run programs."""

import re
from collections.abc import Mapping

_VALUED = frozenset({"-C", "--git-dir", "--work-tree", "--namespace", "--super-prefix", "--attr-source"})
_FLAGS = frozenset(
    {"-p", "--paginate", "-P", "--no-pager", "--bare", "--no-replace-objects", "--literal-pathspecs",
     "--no-optional-locks", "--glob-pathspecs", "--noglob-pathspecs", "--icase-pathspecs", "--no-advice",
     "-v", "--version", "-h", "--help", "--html-path", "--man-path", "--info-path", "--exec-path"}
)  # fmt: skip
_RUNS_OTHERS = frozenset(
    {"filter-branch", "difftool", "mergetool", "shell", "remote-ext", "remote-fd", "web--browse", "instaweb",
     "daemon", "for-each-repo", "merge-index", "send-email", "imap-send", "citool", "gui", "credential", "help",
     "hook", "credential-cache", "credential-store", "cvsserver", "http-backend", "p4", "svn", "maintenance",
     "quiltimport"}
)  # fmt: skip
WITHOUT_ESCAPES = frozenset(
    {"add", "rm", "mv", "commit", "checkout", "switch", "branch", "tag", "status", "restore", "reset", "stash",
     "merge", "cherry-pick", "revert", "rev-parse", "ls-files", "cat-file", "describe", "worktree", "blame"}
)  # fmt: skip
"""Commands that have no option which runs a program or writes a file."""
_SHORT: Mapping[str, str] = {"clone": "cu", "grep": "O", "rebase": "x"}
"""Letters of options that run a program or set what runs one."""
_LONG: Mapping[str, tuple[str, ...]] = {
    "clone": ("--config", "--template"),
    "init": ("--template",),
    "grep": ("--open-files-in-pager",),
}
_LONG_OF_ALL = ("--upload-pack", "--receive-pack", "--exec", "--extcmd", "--ext-diff", "--output")
_HARMLESS_SETTING = re.compile(
    r"(user|color|advice|pull|branch|column|help|tag|versionsort)\..*|init\.defaultbranch|push\.(default|auto.*)"
    r"|core\.(autocrlf|eol|safecrlf|filemode|ignorecase|quotepath|longpaths|abbrev|symlinks|precomposeunicode)"
    r"|(merge|rebase|fetch|rerere|log|diff|commit|status)\."
    r"(ff|conflictstyle|autostash|autosquash|prune|enabled|date|algorithm|renames|colormoved|gpgsign|verbose|short"
    r"|showuntrackedfiles)|safe\.directory",
    re.IGNORECASE,
)
_READS_SETTINGS = frozenset(
    {"-l", "--list", "--get", "--get-all", "--get-regexp", "--get-urlmatch", "--get-color", "--get-colorbool",
     "get", "list", "--unset", "--unset-all", "unset", "--name-only"}
)  # fmt: skip


def does_more(arguments: tuple[str, ...]) -> bool:
    """Whether it may run a program, or write a file, that its command by itself would not."""
    if any("ext::" in word for word in arguments):
        return True
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        name, equals, _ = option.partition("=")
        if option in _VALUED:
            del rest[:1]
        elif not (option in _FLAGS or (equals and name in _VALUED)):
            return True
    return bool(rest) and _by_command(rest[0], rest[1:])


def _by_command(command: str, words: list[str]) -> bool:
    operands = [word for word in words if not word.startswith("-")]
    match command:
        case _ if command in _RUNS_OTHERS:
            return True
        case "bisect":
            return "run" in operands
        case "submodule":
            return "foreach" in operands
        case "config":
            return _sets(words, operands)
        case _:
            return any(_is_dangerous(command, word) for word in words)


def _is_dangerous(command: str, word: str) -> bool:
    if word.startswith("--"):
        name = word.partition("=")[0]
        known = (*_LONG_OF_ALL, *_LONG.get(command, ()))
        return len(name) > 3 and any(option.startswith(name) for option in known)
    letters = _SHORT.get(command, "")
    return word.startswith("-") and any(letter in word[1:] for letter in letters)


def _sets(words: list[str], operands: list[str]) -> bool:
    """Whether a setting is changed that could name a program."""
    if any(word in _READS_SETTINGS for word in words) or len(operands) < 2:
        return any(word in ("-e", "--edit", "edit") for word in words)
    names = [word for word in operands if "." in word] or operands
    return any(_HARMLESS_SETTING.fullmatch(name) is None for name in names[:1]) or any(
        word.startswith(("-f", "--file", "--blob")) for word in words
    )
