"""Hooks of an agent that are shell commands."""

import re
import shlex
from typing import Annotated, Literal

from msgspec import Meta, Struct

_DIGEST = re.compile(r"[0-9a-fA-F]{64}")


class CommandHook(Struct, frozen=True, omit_defaults=True):
    """A shell command that decides about tool calls. It reads the event as JSON from its standard input and writes
    its decision as JSON to its standard output. Without output the call continues; exit code 2 blocks it."""

    command: Annotated[str, Meta(extra_json_schema={"pattern": r"\S"})]
    """The command line. It runs in the sandbox of the agent, in a folder of its own. A program that it names by a
    relative path is in the folder of the agent in the home, or in `hooks` there."""
    tools: str = "*"
    """The tools that it applies to: a name or a glob."""
    on: Literal["before", "after"] = "before"
    """Before a call runs, or after it with its result."""
    timeout: Annotated[float, Meta(extra_json_schema={"exclusiveMinimum": 0, "maximum": 600})] = 30.0
    """Maximum seconds. A hook that takes longer blocks the call."""
    sha256: Annotated[str, Meta(extra_json_schema={"pattern": f"^{_DIGEST.pattern}$"})] | None = None
    """The SHA-256 of the program that the command names. Then it may be in the workspace: it is read-only there for
    the agent, and a changed one blocks every call."""

    def __post_init__(self) -> None:
        if not self.command.strip():
            raise ValueError("command must not be empty")
        if not 0 < self.timeout <= 600:
            raise ValueError(f"timeout must be above 0 and at most 600, found {self.timeout}")
        if self.sha256 is not None and _DIGEST.fullmatch(self.sha256) is None:
            raise ValueError("sha256 must be 64 hexadecimal digits")

    @property
    def scripts(self) -> tuple[str, ...]:
        """The programs and scripts that the command names by a path, in order."""
        return tuple(dict.fromkeys(_find_scripts(self.command)))

    @property
    def pinned_script(self) -> str | None:
        """The program that must have the given content, if it is named by a relative path."""
        names = self.scripts if self.sha256 is not None else ()
        return names[0] if names and not names[0].startswith("/") else None


_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")
_INTERPRETER = re.compile(
    r"(?:python|pypy|perl|ruby|node|nodejs|php|lua)[0-9.]*|(?:ba|da|z|k|mk|fi|a)?sh|deno|bun|Rscript|pwsh|awk|source|\."
)
_PREFIXES = frozenset({"exec", "command", "env", "nice", "time", "timeout", "nohup", "stdbuf", "run", "uv", "npx"})
_SEPARATORS = frozenset({";", "|", "||", "&", "&&", "(", ")", ";;", "|&", "\n"})
_CODE_OPTIONS = ("-c", "-e", "-m", "--eval")


def _find_scripts(command: str) -> list[str]:
    """Return the words of a command line at which a program or the script of an interpreter stands."""
    lexer = shlex.shlex(command.replace("\n", " ; "), posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:  # the shell reports it
        return []
    found: list[str] = []
    expects_program, expects_script = True, False
    for word in words:
        if word in _SEPARATORS:
            expects_program, expects_script = True, False
        elif expects_program:
            bare = word.removeprefix("/usr").removeprefix("/bin/")
            if _ASSIGNMENT.match(word) or bare in _PREFIXES or word.startswith("-") or word.isdigit():
                continue
            expects_program = False
            expects_script = _INTERPRETER.fullmatch(word.rpartition("/")[2]) is not None
            if "/" in word and not word.startswith("$"):
                found.append(word)
        elif expects_script and word.startswith(_CODE_OPTIONS):
            expects_script = False
        elif expects_script and not word.startswith("-"):
            expects_script = False
            found.append(word)
    return found
