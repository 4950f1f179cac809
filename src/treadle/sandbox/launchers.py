"""Programs that load the code of another one: interpreters, package runners and wrappers. A table says which of
their arguments name code; the arguments after those are data."""

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from msgspec import Struct


class ProgramWord(Struct, frozen=True):
    """A word of a command line."""

    role: str
    """Its place in the entry, for example `argument 1`."""
    text: str
    is_code: bool
    """The program loads what this word names. False: data, unless the file that it names is a program itself."""


class Launcher(Struct, frozen=True):
    """How a program takes the code that it runs."""

    valued: frozenset[str] = frozenset()
    """Options with a value in the next word."""
    final: frozenset[str] = frozenset()
    """Options whose value is what runs. The words after it are data."""
    verbs: frozenset[str] = frozenset()
    """Words before the operand, such as `run`."""
    runs_all: bool = False
    """Every word can be code, because the program is a shell or an unknown command runs in it."""


def _make(valued: str = "", final: str = "", verbs: str = "") -> Launcher:
    return Launcher(frozenset(valued.split()), frozenset(final.split()), frozenset(verbs.split()))


_NODE_OPTIONS = (
    "-r --require --import --loader --experimental-loader -C --conditions --env-file --env-file-if-exists "
    "--icu-data-dir --openssl-config --snapshot-blob --experimental-config-file --title --inspect-port"
)
_UV_OPTIONS = (
    "--directory --project --with --with-editable --with-requirements --from -p --python --env-file --config-file "
    "--index --default-index -i --index-url --extra-index-url -f --find-links --cache-dir --extra --group "
    "--only-group --no-group --package -c --constraints -b --build-constraints --overrides --color --link-mode "
    "--refresh-package -P --upgrade-package --allow-insecure-host --python-platform --index-strategy"
)
_NPM_OPTIONS = (
    "-p --package -C --prefix --cache --userconfig --globalconfig -w --workspace --script-shell --registry"
)
_PROJECT_OPTIONS = "-C --directory -P --project -p --prefix -n --name -e --env -m --manifest-path --cwd"
_CARGO_OPTIONS = (
    "--manifest-path -C --config -p --package --bin --example --target-dir --target --profile -F --features"
)
_SHELLS = (
    "sh bash dash zsh fish ksh ash busybox make just task bundle rake sudo doas xargs find parallel watch script "
    "mise asdf direnv nix nix-shell npm-run-all concurrently nodemon tmux screen ssh docker podman"
)
_TABLE: Mapping[str, Launcher] = {
    "python pythonw pypy": _make("-X -W --check-hash-based-pycs", "-m -c"),
    "node nodejs": _make(_NODE_OPTIONS, "-e --eval -p --print -pe", "inspect"),
    "tsx ts-node ts-node-esm": _make(
        f"{_NODE_OPTIONS} --tsconfig -P --project --cwd -T", "-e --eval -p --print", "watch"
    ),
    "bun": _make(
        "-r --preload --require --import --cwd -c --config --tsconfig-override --env-file -F --filter",
        "-e --eval -p --print",
        "run x exec",
    ),
    "deno": _make(
        "-c --config --import-map --lock --cert --location --seed --env-file --preload --import",
        verbs="run eval x serve task",
    ),
    "npx npm pnpm pnpx yarn bunx": _make(
        _NPM_OPTIONS, "-c --call", "exec x run run-script start dlx dx create explore"
    ),
    "uv uvx uvw": _make(_UV_OPTIONS, "-m --module -s --script --gui-script", "run tool"),
    "pipx": _make("--spec --python --pip-args --index-url --path", verbs="run runpip"),
    "poetry pdm hatch pipenv pixi conda mamba micromamba rye": _make(_PROJECT_OPTIONS, verbs="run exec"),
    "ruby jruby": _make("-I -r -C -x -S -E -K -W -F", "-e"),
    "perl": _make("-I", "-e -E"),
    "php": _make("-c -d -z -t -S -B -E -R -F", "-r -f"),
    "lua luajit": _make("-l", "-e"),
    "Rscript": _make(final="-e"),
    "java": _make(
        "-cp -classpath --class-path -p --module-path --add-modules --upgrade-module-path -splash",
        "-jar -m --module",
    ),
    "dotnet": _make(
        "--project -p --additionalprobingpath --additional-deps --depsfile --runtimeconfig --fx-version",
        verbs="run exec tool",
    ),
    "go": _make("-C -exec -modfile -overlay -tags -ldflags -mod", verbs="run tool"),
    "cargo": _make(_CARGO_OPTIONS, verbs="run"),
    _SHELLS: Launcher(runs_all=True),
}
LAUNCHERS: Mapping[str, Launcher] = {name: each for names, each in _TABLE.items() for name in names.split()}
WRAPPERS = frozenset(("env", "nice", "nohup", "timeout", "setsid", "stdbuf", "time", "ionice", "chrt", "taskset"))
"""Programs that run the command in their arguments."""
CODE_VARIABLES = re.compile(
    r"PATH|ENV|BASH_ENV|CLASSPATH|PERLLIB|VIRTUAL_ENV|HOME|_JAVA_OPTIONS|GCONV_PATH|GTK_PATH|GST_PLUGIN_PATH|"
    r"(?:PYTHON|NODE_|NPM_CONFIG_|PNPM_|YARN_|LD_|DYLD_|PERL5|RUBY|GEM_|BUNDLE_|JAVA_|JDK_|DOTNET_|UV_|PIP_|"
    r"POETRY_|PDM_|DENO_|BUN_|CARGO_|RUSTC|LUA_|PHP|GIT_|CONDA_|MAMBA_|OPENSSL_|ZDOTDIR|TS_NODE_|NVM_|GUILE_|ERL_|"
    r"R_LIBS|COREPACK_|VOLTA_|PYENV_|RBENV_|ASDF_|MISE_|NIX_|XDG_DATA|XDG_CONFIG|"
    r"GO(?:FLAGS|PATH|ROOT|ENV)|TREADLE_).*",
    re.IGNORECASE,
)
"""Variables that name code, or a file that names code."""
_VERSION = re.compile(r"(?:[-.]?\d+(?:\.\d+)*t?)?(?:\.exe)?\Z")
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


def find_launcher(program: str) -> str | None:
    """Return the name of a program in the table, without its folder and its version, or None."""
    name = _VERSION.sub("", Path(program).name)
    return name if name in LAUNCHERS or name in WRAPPERS else None


def classify_words(program: str, arguments: Sequence[str], first: int = 1) -> Iterator[ProgramWord]:
    """Yield the arguments of a program, each with whether it names code. `first` is the number of the first one."""
    name = find_launcher(program)
    if name in WRAPPERS:
        yield from _classify_wrapped(arguments, first)
        return
    launcher = None if name is None else LAUNCHERS[name]
    code = len(arguments) if launcher is not None and launcher.runs_all else _count_code(launcher, arguments)
    for index, text in enumerate(arguments[:code]):
        yield ProgramWord(f"argument {first + index}", text, is_code=True)
    rest = arguments[code:]
    if code and launcher is not None and not launcher.runs_all and find_launcher(arguments[code - 1]) is not None:
        yield from classify_words(arguments[code - 1], rest, first + code)
        return
    for index, text in enumerate(rest):
        yield ProgramWord(f"argument {first + code + index}", text, is_code=False)


def _classify_wrapped(arguments: Sequence[str], first: int) -> Iterator[ProgramWord]:
    """Yield the words of a wrapper, then those of the command that it runs. If that is unclear, all are code."""
    for index, text in enumerate(arguments):
        yield ProgramWord(f"argument {first + index}", text, is_code=True)
        is_program = not text.startswith("-") and not _ASSIGNMENT.match(text) and not text[:1].isdigit()
        if is_program and (
            find_launcher(text) is not None or index == 0 or _ASSIGNMENT.match(arguments[index - 1])
        ):
            yield from classify_words(text, arguments[index + 1 :], first + index + 1)
            return


def _count_code(launcher: Launcher | None, arguments: Sequence[str]) -> int:
    """Return how many of the first arguments belong to the launcher: its options, and what it runs."""
    if launcher is None:
        return 0
    index = 0
    while index < len(arguments):
        word = arguments[index]
        if word in launcher.final or word == "--":
            return min(index + 2, len(arguments))
        if word.startswith("-") and len(word) > 1:
            if _holds_final(word, launcher):
                return index + 1
            index += 2 if word in launcher.valued else 1
        elif word in launcher.verbs:
            index += 1
        else:
            return index + 1
    return len(arguments)


def _holds_final(word: str, launcher: Launcher) -> bool:
    """Return whether a word is an option and what it runs in one, such as `-mserver` or `--module=server`."""
    name, separator, _ = word.partition("=")
    if separator and name in launcher.final:
        return True
    return any(len(option) == 2 and word.startswith(option) and len(word) > 2 for option in launcher.final)
