"""The environment of a command, built from scratch. Only the search path comes from the engine's user."""

import re
from collections.abc import Mapping

from treadle.sandbox.git_settings import build_git_variables
from treadle.sandbox.toolchains import Toolchains

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")

FIXED: Mapping[str, str] = {
    "LANG": "C.UTF-8",
    "LC_ALL": "C.UTF-8",
    "SHELL": "/bin/bash",
    # There is no terminal and no one to answer prompts.
    "TERM": "dumb",
    "PAGER": "cat",
    "MANPAGER": "cat",
    "GIT_PAGER": "cat",
    "SYSTEMD_PAGER": "cat",
    "EDITOR": "false",
    "VISUAL": "false",
    "GIT_EDITOR": "false",
    "GIT_ASKPASS": "false",
    "SSH_ASKPASS": "false",
    "GIT_TERMINAL_PROMPT": "0",
    "DEBIAN_FRONTEND": "noninteractive",
    "PIP_NO_INPUT": "1",
}


def build_environment(
    given: Mapping[str, str], tools: Toolchains, home: str, git: Mapping[str, str] | None = None
) -> dict[str, str]:
    """Return the variables of one command. The given variables cannot override the fixed ones.

    `git` contains the variables with git's overrides. Raise ValueError if a name is not a valid variable name."""
    for name, value in given.items():
        if VARIABLE.match(name) is None or "\0" in value:
            raise ValueError(
                f"`{name}` cannot be handed to a command as a variable: its name has more than letters, digits and "
                f"underscores, or its value has a NUL. Rename it, or do not grant it to this tool."
            )
    git_variables = build_git_variables((), None) if git is None else git
    return {**given, **FIXED, **git_variables, **tools.variables, "PATH": tools.path, "HOME": home}
