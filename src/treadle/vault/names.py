"""What a secret may be called and what it may be: commands get it as a variable of their environment."""

import re

from treadle.domain.errors import UsageError

LONGEST_VALUE = 64 * 1024
SHORTEST_VALUE = 8
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_GRANTEE = re.compile(r"[^\s\x00-\x1f\x7f]{1,128}")

_TAKEN = frozenset((
    "_", "PATH", "HOME", "USER", "LOGNAME", "SHELL", "PWD", "OLDPWD", "TERM", "LANG", "TZ", "TMPDIR", "HOSTNAME",
    "IFS", "ENV", "CDPATH", "PS0", "PS1", "PS2", "PS4", "PROMPT_COMMAND", "SHELLOPTS", "GLOBIGNORE", "FIGNORE",
    "EXECIGNORE", "HISTFILE", "OPTARG", "OPTIND", "OPTERR", "REPLY", "SECONDS", "RANDOM", "SRANDOM", "LINENO",
    "EPOCHSECONDS", "EPOCHREALTIME", "FUNCNAME", "DIRSTACK", "GROUPS", "UID", "EUID", "PPID", "COLUMNS", "LINES",
    "MAILPATH", "MAILCHECK", "POSIXLY_CORRECT", "INPUTRC", "TMOUT", "SHLVL", "EDITOR", "VISUAL", "PAGER",
    "MANPAGER", "BROWSER", "LESSOPEN", "LESSCLOSE", "GCONV_PATH", "LOCPATH", "NLSPATH", "MALLOC_TRACE",
    "RES_OPTIONS", "HOSTALIASES", "NODE_OPTIONS", "NODE_PATH", "PERL5OPT", "PERL5LIB", "PERL5DB", "RUBYOPT",
    "RUBYLIB", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS", "CLASSPATH", "GIT_DIR", "GIT_WORK_TREE", "GIT_PAGER",
    "GIT_EDITOR", "GIT_SSH", "GIT_SSH_COMMAND", "GIT_ASKPASS", "GIT_EXEC_PATH", "GIT_EXTERNAL_DIFF", "SSH_ASKPASS",
))  # fmt: skip
_TAKEN_BEGINNINGS = (
    "LD_",
    "DYLD_",
    "BASH",
    "LC_",
    "PYTHON",
    "TREADLE_",
    "GLIBC_",
    "GIT_CONFIG",
    "GIT_TRACE",
    "COMP_",
)
"""Names that change what a shell or an interpreter does."""


def refuse_wrong_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"`{name}` cannot be the name of a secret: commands get it as a variable. Use letters, digits and _, "
            "at most 64 of them, with no digit first; for example GITHUB_TOKEN."
        )
    if name in _TAKEN or name.startswith(_TAKEN_BEGINNINGS):
        raise UsageError(
            f"`{name}` cannot be the name of a secret: as a variable it would change what commands do. Choose "
            f"another one, for example MY_{name.strip('_') or 'SECRET'}."
        )


def refuse_wrong_value(name: str, value: str, forced: bool) -> None:
    """The message says nothing of the value but its length."""
    if not value:
        raise UsageError(f"The value of {name} is empty. Nothing was changed.")
    if len(value.strip()) < SHORTEST_VALUE and not forced:
        raise UsageError(
            f"The value of {name} has fewer than {SHORTEST_VALUE} characters: redacting it would hide innocent "
            "text too. Use a longer one, or --force. Nothing was changed."
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"The value of {name} is not text in UTF-8. Encode it first, for example in base64."
        ) from None
    if "\0" in value:
        raise UsageError(f"The value of {name} has a NUL character, which no variable can hold. Encode it first.")
    if len(value) > LONGEST_VALUE:
        raise UsageError(f"The value of {name} has {len(value):,} characters; at most {LONGEST_VALUE:,} are kept.")


def refuse_wrong_grantee(kind: str, given: str) -> None:
    if not _GRANTEE.fullmatch(given):
        raise UsageError(f"`{given}` is not the name of {kind}, nor a glob of such names, such as *.")
