"""Variables that change what other programs do: where they are found, what they load, which programs they run."""

import re
from collections.abc import Iterable

from treadle.tools.shell.words import Word

_UNTRUSTED_NAMES = frozenset(
    {
        "PATH", "HOME", "IFS", "ENV", "SHELL", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND", "CDPATH", "EDITOR",
        "VISUAL", "PAGER", "MANPAGER", "SYSTEMD_PAGER", "BROWSER", "LESSOPEN", "LESSCLOSE", "LESS", "GLOBIGNORE",
        "EXECIGNORE", "FIGNORE", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "XDG_DATA_DIRS", "GCONV_PATH",
        "LOCPATH", "NLSPATH", "HOSTALIASES", "TAR_OPTIONS", "RSYNC_RSH", "MAKEFLAGS", "MFLAGS", "GNUMAKEFLAGS",
        "CC", "CXX", "LD", "CPP", "RUSTC", "RUSTFLAGS", "CLASSPATH", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS",
        "JDK_JAVA_OPTIONS", "MAVEN_OPTS", "GRADLE_OPTS", "RIPGREP_CONFIG_PATH", "CURL_HOME", "WGETRC", "INPUTRC",
        "EXINIT", "VIMINIT", "AWKPATH", "AWKLIBPATH", "PHPRC", "DOCKER_HOST", "KUBECONFIG", "ANSIBLE_CONFIG",
        "GOFLAGS", "HISTFILE", "RANDOM", "SRANDOM", "OPTIND", "SECONDS", "HISTCMD", "HISTSIZE", "LINENO", "TMOUT",
        "MAKEFILES", "PSQLRC", "ZDOTDIR", "OPENSSL_CONF",
    }
)  # fmt: skip
_UNTRUSTED_PREFIXES = (
    "LD_", "DYLD_", "BASH_", "GIT_", "SSH_", "PYTHON", "NODE_", "NPM_", "npm_", "PERL", "RUBY", "GEM_", "BUNDLE_",
    "CARGO_", "RUSTC_", "PIP_", "UV_", "GCC_", "GLIBC_", "MALLOC_", "LUA_", "DOTNET_", "SUDO_",
)  # fmt: skip


_TRUSTED_NAMES = frozenset(
    {
        "NODE_ENV", "NODE_NO_WARNINGS", "NPM_TOKEN", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE",
        "PYTHONHASHSEED", "PYTHONIOENCODING", "PYTHONUTF8", "PYTHONWARNINGS", "CARGO_TERM_COLOR",
        "GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_AUTHOR_DATE", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL",
        "GIT_COMMITTER_DATE", "GIT_TERMINAL_PROMPT", "PIP_NO_INPUT", "PIP_DISABLE_PIP_VERSION_CHECK",
        "UV_NO_PROGRESS",
    }
)  # fmt: skip
_SUSPICIOUS = re.compile(
    r"PAGER|EDITOR|BROWSER|SHELL|COMMAND|CMD|PROG|RSH|OPTS?$|OPTIONS?|ARGS?$|FLAGS|PATH|CONF|RC$|RC_|_HOME|_DIR$|PRELOAD"
    r"|PLUGIN|MODULE|PYTHON|LIBRARY|INIT|STARTUP|WRAPPER|HOOK|ASKPASS|EXEC|TOOL|COMPILER|LOADER|PROFILE|PROXY|LINKER"
    r"|ENGINE|PROVIDER|SCRIPT|INCLUDE|OVERRIDES|_SSH$|^(AS|AR|NM|FC|YACC|LEX|HG|ZIP|UNZIP|GZIP|MANOPT|ZIPOPT|XZ_OPT)$"
)
"""Not every variable of every program is known, but those that name programs, files or options have similar
names."""


def is_trusted_variable(name: str, exported: bool = False) -> bool:
    """Return whether setting a variable does not change what programs do. `exported`: other programs see it."""
    if name in _TRUSTED_NAMES:
        return True
    if name in _UNTRUSTED_NAMES or name.startswith(_UNTRUSTED_PREFIXES):
        return False
    named_so = name.upper() if name.lower().endswith("_proxy") else name
    return not (exported and named_so.isupper() and _SUSPICIOUS.search(named_so))


def explain_untrusted(name: str) -> str:
    return f"`{name}` changes what other programs do"


def find_assigned(words: tuple[Word, ...]) -> Iterable[Word]:
    """Return the variables that a builtin sets, where the grammar does not show them."""
    match words[0].text:
        case "read" | "mapfile" | "readarray" | "getopts" | "unset":
            return [word for word in words[1:] if not word.text.startswith("-")]
        case "printf" if len(words) > 2 and words[1].text.startswith("-v"):
            return [words[2] if words[1].text == "-v" else words[1].after(2)]
        case "wait":
            return _find_option_values(words, "p")
        case "export" | "declare" | "typeset" | "readonly" | "local":
            return [word for word in words[1:] if not word.text.startswith("-")]
        case _:
            return ()


def _find_option_values(words: tuple[Word, ...], letter: str) -> list[Word]:
    """Return the values of an option with one letter, which may stand behind others (`-np NAME`, `-pNAME`)."""
    found: list[Word] = []
    for index, word in enumerate(words[1:], start=1):
        before, sign, value = word.text.partition(letter)
        if before.startswith("-") and sign:
            found += [word.after(len(before) + 1)] if value else list(words[index + 1 : index + 2])
    return found
