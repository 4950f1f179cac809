"""Decides what a call of `git` does beyond its words: options, settings and many verbs make it run programs.

`sandbox/git_settings.py` overrides the settings of a repository that run programs. This module decides which calls
those overrides cover, and makes all others opaque to the rules."""

import re
from collections.abc import Iterable

from treadle.ports.sandbox import GitUse
from treadle.tools.shell.risks import find_table
from treadle.tools.shell.simple_commands import SimpleCommand

_FLAGS = frozenset(
    {"-p", "--paginate", "-P", "--no-pager", "--no-replace-objects", "--literal-pathspecs",
     "--no-optional-locks", "--glob-pathspecs", "--noglob-pathspecs", "--icase-pathspecs", "--no-advice",
     "-v", "--version", "-h", "--html-path", "--man-path", "--info-path", "--exec-path"}
)  # fmt: skip
READING_VERBS = frozenset(
    {"status", "diff", "log", "show", "blame", "annotate", "shortlog", "describe", "rev-parse", "rev-list",
     "ls-files", "ls-tree", "cat-file", "reflog", "grep", "name-rev", "merge-base", "count-objects",
     "for-each-ref", "show-ref", "show-branch", "diff-tree", "range-diff", "cherry", "var", "version",
     "check-ignore", "check-attr", "check-ref-format", "verify-commit", "verify-tag", "merge-tree"}
)  # fmt: skip
"""Verbs that only read. With the overrides they run no program that a repository names."""
_KEEP_SETTINGS = frozenset({"add", "commit", "push", "fetch", "branch", "tag"})
"""Verbs that write no file which settings may include."""
_PLAIN_FOLDER = re.compile(r"[A-Za-z0-9_./][A-Za-z0-9_./+@-]*")
_NEW_ENVIRONMENT = frozenset({"env", "exec", "sudo", "doas", "su", "runuser", "ssh", "chroot", "find", "watch"})
"""Wrappers that drop or may replace the variables with the overrides, or that change the folder."""
VERBS_WITHOUT_ESCAPES = frozenset(
    {"add", "rm", "mv", "commit", "checkout", "switch", "branch", "tag", "status", "restore", "reset", "stash",
     "merge", "cherry-pick", "revert", "rev-parse", "ls-files", "cat-file", "describe", "worktree", "blame"}
)  # fmt: skip
"""Verbs without an option that runs a program or writes a file."""
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


def exceeds_verb(arguments: tuple[str, ...]) -> bool:
    """Return whether a call may run a program, or write a file, that its verb would not. Unknown verbs may be
    aliases."""
    if any("ext::" in word for word in arguments):
        return True
    rest = list(arguments)
    folders = 0
    while rest and rest[0].startswith("-"):
        option = rest.pop(0)
        if option == "-C" and rest and _PLAIN_FOLDER.fullmatch(rest[0]) and not folders:
            folders += 1
            rest.pop(0)
        elif option not in _FLAGS:
            return True
    return bool(rest) and _exceeds_verb_by_words(rest[0], rest[1:])


def find_git_use(calls: Iterable[SimpleCommand]) -> GitUse | None:
    """Return how a line uses git, for the overrides, or None if it does not."""
    folders = {"."}
    reads_only, used = True, False
    for call in calls:
        if call.program == "cd":
            folders.update(call.operands[:1])
        elif call.program == "git":
            used = True
            verb, words = split_verb(call.arguments)
            reads_only = reads_only and (not verb or _only_reads(verb, words))
            if "-C" in call.arguments[:-1]:
                folders.add(call.arguments[call.arguments.index("-C") + 1])
    return GitUse(reads_only, tuple(sorted(folders))) if used else None


def find_line_escape(calls: list[SimpleCommand], read_only: frozenset[str]) -> str | None:
    """Return why the overrides may not cover a call of git in this line, or None. `looking`: programs that write
    no file."""
    git_calls = [call for call in calls if call.program == "git"]
    if any(_NEW_ENVIRONMENT & set(call.within) for call in git_calls):
        return "`git` runs in another environment or folder"
    if not any(_only_reads(*split_verb(call.arguments)) for call in git_calls):
        return None
    moves = [call for call in calls if call.program in ("cd", "pushd", "popd", "dirs")]
    elsewhere = [call for call in git_calls if "-C" in call.arguments]
    if len(moves) + bool(elsewhere) > 1 or any(not _is_plain_move(call) for call in moves):
        return "`git` runs in a folder that is not known"
    for call in calls:
        if call.program == "git":
            verb, words = split_verb(call.arguments)
            changes_nothing = not verb or _only_reads(verb, words) or verb in _KEEP_SETTINGS
        else:
            changes_nothing = call.program in read_only
        if not changes_nothing:
            return f"`{call.program}` may change the settings of the repository before `git` reads them"
    return None


def split_verb(arguments: tuple[str, ...]) -> tuple[str, list[str]]:
    """Return the verb and what follows it; the verb is empty if there is none."""
    rest = list(arguments)
    while rest and rest[0].startswith("-"):
        del rest[: 2 if rest[0] == "-C" else 1]
    return (rest[0], rest[1:]) if rest else ("", [])


def _is_plain_move(call: SimpleCommand) -> bool:
    return call.program == "cd" and len(call.arguments) == 1 and bool(_PLAIN_FOLDER.fullmatch(call.arguments[0]))


def _only_reads(verb: str, words: list[str]) -> bool:
    if verb == "reflog":
        operands = [word for word in words if not word.startswith("-")]
        return not operands or operands[0] not in ("expire", "delete", "write", "drop")
    return verb in READING_VERBS


def _exceeds_verb_by_words(verb: str, words: list[str]) -> bool:
    if find_table("git").find_verb(verb) is None:
        return True
    operands = [word for word in words if not word.startswith("-")]
    match verb:
        case "bisect":
            return "run" in operands
        case "config":
            return _sets_dangerous_setting(words, operands)
        case _:
            tables = (find_table("git"), find_table(f"git {verb}"))
            return any(table.escapes(tuple(words)) for table in tables if table.has_escapes)


def _sets_dangerous_setting(words: list[str], operands: list[str]) -> bool:
    """Return whether a setting is changed that could name a program."""
    if any(word in _READS_SETTINGS for word in words) or len(operands) < 2:
        return any(word in ("-e", "--edit", "edit") for word in words)
    names = [word for word in operands if "." in word] or operands
    return any(_HARMLESS_SETTING.fullmatch(name) is None for name in names[:1]) or any(
        word.startswith(("-f", "--file", "--blob")) for word in words
    )
