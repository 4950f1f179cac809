"""Allowed names and values of secrets. Commands get a secret as an environment variable."""

import re

from treadle.domain.errors import UsageError
from treadle.domain.limits import SECRET_NAME_PATTERN

MAX_VALUE_CHARS = 64 * 1024
MIN_VALUE_CHARS = 8
_NAME = re.compile(SECRET_NAME_PATTERN)
_GRANTEE = re.compile(r"[^\s\x00-\x1f\x7f]{1,128}")

_RESERVED = frozenset((
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
_RESERVED_PREFIXES = (
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
"""Names that change how a shell or an interpreter behaves."""


def check_name(name: str) -> None:
    if not _NAME.fullmatch(name):
        raise UsageError(
            f"`{name}` cannot be the name of a secret: commands get it as a variable. Use up to 64 letters, digits "
            "and _, without a digit at the start; for example GITHUB_TOKEN."
        )
    if name in _RESERVED or name.startswith(_RESERVED_PREFIXES):
        raise UsageError(
            f"`{name}` cannot be the name of a secret: as a variable it would change how commands behave. Choose "
            f"another name, for example MY_{name.strip('_') or 'SECRET'}."
        )


def check_value(name: str, value: str, forced: bool) -> None:
    """Raise UsageError if the value cannot be stored. The message reveals only the length of the value."""
    if not value:
        raise UsageError(f"The value of {name} is empty. Nothing was changed.")
    if len(value.strip()) < MIN_VALUE_CHARS and not forced:
        raise UsageError(
            f"The value of {name} has fewer than {MIN_VALUE_CHARS} characters: redacting it would hide unrelated "
            "text too. Use a longer value, or --force. Nothing was changed."
        )
    try:
        value.encode()
    except UnicodeEncodeError:
        raise UsageError(
            f"The value of {name} is not text in UTF-8. Encode it first, for example in base64."
        ) from None
    if "\0" in value:
        raise UsageError(
            f"The value of {name} contains a NUL character, which no variable can hold. Encode it first."
        )
    if len(value) > MAX_VALUE_CHARS:
        raise UsageError(
            f"The value of {name} has {len(value):,} characters; at most {MAX_VALUE_CHARS:,} are allowed."
        )


def check_grantee(kind: str, grantee: str) -> None:
    if not _GRANTEE.fullmatch(grantee):
        raise UsageError(f"`{grantee}` is not the name of {kind}, nor a glob of such names, such as *.")
