"""Suggests the pattern with which a reviewer can allow similar commands without further approvals.

A glob includes further words only if no further word changes the kind of the command: `git log *`, but not `docker
run *`. Otherwise the exact command is suggested, and for a line that no glob describes, exactly this line. A
pattern always covers the command that it is suggested for."""

import re
from collections.abc import Mapping

from treadle.domain.command_patterns import covers
from treadle.domain.permissions import make_exact_pattern
from treadle.tools.shell.escapes import SUBCOMMANDS
from treadle.tools.shell.program_risks import READ_ONLY_PROGRAMS
from treadle.tools.shell.simple_commands import ParsedLine, SimpleCommand
from treadle.tools.shell.wrappers import SHELLS, WRAPPERS

MAX_LINE_CHARACTERS = 200
"""A reviewer can read a line of this length as a whole wherever the pattern is shown."""
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_./:@+,=-]+")
_RUNS_ANYTHING = (
    SHELLS
    | WRAPPERS.keys()
    | {
        "find", "eval", "su", "python", "python3", "ipython", "node", "deno", "bun", "perl", "ruby", "php", "lua",
        "awk", "gawk", "mawk", "nawk", "Rscript", "osascript", "gdb", "lldb", "vim", "vi", "nvim", "ex", "ed",
        "emacs", "sqlite3", "duckdb", "psql", "mysql", "mariadb", "mongosh", "expect", "npx", "bunx", "uvx", "pipx",
        "script", "flock", "runuser", "sftp", "osqueryi", "sed", "gsed", "tclsh", "java", "jshell", "groovy",
    }
)  # fmt: skip
"""Programs that run arbitrary code: to allow them always is to allow everything."""
_OFFERED_VERBS: Mapping[str, frozenset[str]] = {
    "git": frozenset({
        "status", "log", "diff", "show", "add", "commit", "blame", "shortlog", "describe", "rev-parse", "ls-files",
        "ls-tree", "cat-file", "reflog", "grep", "rev-list", "fetch", "name-rev", "merge-base", "count-objects",
    }),
    "docker": frozenset({"ps", "images", "logs", "inspect", "version", "info", "stats", "top", "port", "diff"}),
    "podman": frozenset({"ps", "images", "logs", "inspect", "version", "info", "stats", "top", "port", "diff"}),
    "kubectl": frozenset({"get", "describe", "logs", "top", "version", "explain", "api-resources"}),
    "npm": frozenset({"test", "ls", "list", "view", "outdated", "audit"}),
    "pip": frozenset({"list", "show", "freeze", "check"}),
    "pip3": frozenset({"list", "show", "freeze", "check"}),
    "cargo": frozenset({"test", "build", "check", "clippy", "fmt", "tree", "doc", "bench"}),
    "go": frozenset({"test", "build", "vet", "fmt", "list", "doc", "version", "env"}),
    "systemctl": frozenset({"status", "is-active", "is-enabled", "list-units", "show", "cat"}),
    "apt": frozenset({"list", "show", "search"}),
    "brew": frozenset({"list", "info", "search", "outdated"}),
    "terraform": frozenset({"plan", "validate", "fmt", "show", "output", "version"}),
    "dotnet": frozenset({"test", "build"}),
    "helm": frozenset({"list", "status", "get", "history", "search", "show", "version"}),
}  # fmt: skip
"""Verbs of these programs that are suggested with any further words."""
_READING_VERBS = frozenset({"list", "ls", "view", "status", "diff", "checks", "show", "describe", "get"})
_NAMED_SCRIPTS = frozenset({"npm run", "pnpm run", "yarn run"})
_THREE_WORDS = frozenset({"gh", "aws", "gcloud", "az"})


def suggest_pattern(parsed: ParsedLine) -> str | None:
    """Return the glob for a single simple command that is understood, or None."""
    if (parsed.opaque is not None and not parsed.only_by_path) or len(parsed.calls) != 1 or parsed.calls[0].within:
        return None
    call = parsed.calls[0]
    depth = _count_fixed_words(call)
    fixed = call.words[: depth or len(call.words)]
    if call.program in _RUNS_ANYTHING or re.fullmatch(r"python[0-9.]+", call.program):
        return None
    if not all(_PLAIN_WORD.fullmatch(word) for word in fixed):
        return None
    if call.program in SUBCOMMANDS and len(fixed) > 1 and fixed[1].startswith("-"):
        return None
    exact = " ".join(fixed)
    pattern = exact if len(fixed) == len(call.words) else f"{exact} *"
    if covers(pattern, call.marked_words):
        return pattern
    return " ".join(call.words) if all(_PLAIN_WORD.fullmatch(word) for word in call.words) else None


def suggest_line(line: str) -> str | None:
    """Return the pattern for exactly this line, or None if a reviewer cannot read it at a glance."""
    return make_exact_pattern(line) if len(line) <= MAX_LINE_CHARACTERS and line.isprintable() else None


def _count_fixed_words(call: SimpleCommand) -> int | None:
    """Return how many words say what a command does, whatever follows them; None: all of them."""
    words = call.words
    if call.program in READ_ONLY_PROGRAMS:
        return 1
    if " ".join(words[:2]) in _NAMED_SCRIPTS and len(words) > 2 and not words[2].startswith("-"):
        return 3
    if call.program in _THREE_WORDS:
        return 3 if len(words) > 2 and words[2] in _READING_VERBS and not words[1].startswith("-") else None
    return 2 if len(words) > 1 and words[1] in _OFFERED_VERBS.get(call.program, ()) else None
