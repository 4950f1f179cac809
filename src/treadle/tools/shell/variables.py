"""Variables that change what other programs do: where they are found, what they load, which programs they run."""

from collections.abc import Iterable

from treadle.tools.shell.words import Word

_NAMES = frozenset(
    {
        "PATH", "HOME", "IFS", "ENV", "SHELL", "SHELLOPTS", "BASHOPTS", "PS4", "PROMPT_COMMAND", "CDPATH", "EDITOR",
        "VISUAL", "PAGER", "MANPAGER", "SYSTEMD_PAGER", "BROWSER", "LESSOPEN", "LESSCLOSE", "LESS", "GLOBIGNORE",
        "EXECIGNORE", "FIGNORE", "TMPDIR", "XDG_CONFIG_HOME", "XDG_CONFIG_DIRS", "XDG_DATA_DIRS", "GCONV_PATH",
        "LOCPATH", "NLSPATH", "HOSTALIASES", "TAR_OPTIONS", "RSYNC_RSH", "MAKEFLAGS", "MFLAGS", "GNUMAKEFLAGS",
        "CC", "CXX", "LD", "CPP", "RUSTC", "RUSTFLAGS", "CLASSPATH", "JAVA_TOOL_OPTIONS", "_JAVA_OPTIONS",
        "JDK_JAVA_OPTIONS", "MAVEN_OPTS", "GRADLE_OPTS", "RIPGREP_CONFIG_PATH", "CURL_HOME", "WGETRC", "INPUTRC",
        "EXINIT", "VIMINIT", "AWKPATH", "AWKLIBPATH", "PHPRC", "DOCKER_HOST", "KUBECONFIG", "ANSIBLE_CONFIG",
        "GOFLAGS", "HISTFILE",
    }
)  # fmt: skip
_BEGINNINGS = (
    "LD_", "DYLD_", "BASH_", "GIT_", "SSH_", "PYTHON", "NODE_", "NPM_", "npm_", "PERL", "RUBY", "GEM_", "BUNDLE_",
    "CARGO_", "RUSTC_", "PIP_", "UV_", "GCC_", "GLIBC_", "MALLOC_", "LUA_", "DOTNET_", "SUDO_",
)  # fmt: skip


def trusted_variable(name: str) -> bool:
    """Whether setting it changes nothing but what is said about it."""
    return name not in _NAMES and not name.startswith(_BEGINNINGS)


def assigned_by(words: tuple[Word, ...]) -> Iterable[Word]:
    """The variables that a builtin sets, where the grammar does not tell."""
    match words[0].text:
        case "read" | "mapfile" | "readarray" | "getopts" | "unset":
            return [word for word in words[1:] if not word.text.startswith("-")]
        case "printf" if len(words) > 2 and words[1].text.startswith("-v"):
            return [words[2] if words[1].text == "-v" else words[1].after(2)]
        case "export" | "declare" | "typeset" | "readonly" | "local":
            return [word for word in words[1:] if not word.text.startswith("-")]
        case _:
            return ()
