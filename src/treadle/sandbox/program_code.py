"""Finds the code that a program loads from places that a run can write: the program, its interpreter, its script,
the packages that it imports, and links to any of them."""

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

from treadle.domain.writable_places import WritablePlaces, is_within
from treadle.ports.sandbox import CommandError, Program, WritableCode
from treadle.sandbox.launchers import CODE_VARIABLES, ProgramWord, classify_words, find_launcher
from treadle.system.engine_places import list_path_steps

CODE_SUFFIXES = (
    ".bash", ".bat", ".bin", ".cjs", ".class", ".cts", ".dll", ".dylib", ".egg", ".exe", ".fish", ".jar", ".js",
    ".jsx", ".ksh", ".lua", ".mjs", ".mts", ".node", ".php", ".pl", ".pm", ".ps1", ".pth", ".py", ".pyc", ".pyd",
    ".pyz", ".r", ".rb", ".sh", ".so", ".ts", ".tsx", ".wasm", ".whl", ".zsh",
)  # fmt: skip
INTERPRETERS = (
    "python",
    "pypy",
    "node",
    "nodejs",
    "tsx",
    "ts-node",
    "deno",
    "bun",
    "ruby",
    "perl",
    "php",
    "lua",
    "uv",
)
"""Launchers whose operand is a file, if it has the suffix of one."""
MAX_HEAD_BYTES = 4096
MAX_SCANNED_BYTES = 200_000
"""Largest file of an installation that is searched for paths."""
MAX_NESTED_INTERPRETERS = 4
_ROOT_FILES = ("package.json", "pyproject.toml", "setup.py", "deno.json", "Cargo.toml", "go.mod")
_SEPARATORS = re.compile(r"[\s'\"=:,;()|&<>@]+")
_PACKAGES = ("lib/python3*/site-packages", "lib/python3*/dist-packages", "lib/python3/dist-packages")


def find_writable_code(
    argv: Sequence[str], environment: Mapping[str, str], folder: str | None, places: WritablePlaces
) -> tuple[WritableCode, ...]:
    """Return the code of a command line in writable places. Its program is given by its whole path; `folder` is
    where it starts, None for an empty one."""
    if not places.folders:
        return ()
    found = _Search(places, folder)
    found.check_program(argv[0], argv[1:], "its program")
    for name, value in environment.items():
        if CODE_VARIABLES.fullmatch(name):
            found.check_word(ProgramWord(f"the variable {name}", value, is_code=True))
    return tuple(dict.fromkeys(found.results))


def find_import_variables(argv: Sequence[str], program: Program) -> dict[str, str]:
    """Return the variables that make the imports of a Python program safe: nothing comes from its start folder, and
    what is next to its script only if no run can write it."""
    variables = {"PYTHONSAFEPATH": "1"}
    words = [word.text for word in classify_words(argv[0], argv[1:]) if word.is_code]
    scripts = [os.path.realpath(each) for each in words if each.endswith(".py") and os.path.isfile(each)]
    if not scripts:
        return variables
    folder, avoided = os.path.dirname(scripts[-1]), program.avoided
    is_copied = any(is_within(folder, place) for place in program.copies)
    has_places = any(is_within(each, folder) and avoided.includes(each) for each in avoided.folders)
    if is_copied or not (has_places or avoided.includes(folder)):
        given = program.environment.get("PYTHONPATH")
        variables["PYTHONPATH"] = f"{folder}:{given}" if given else folder
    return variables


class _Search:
    def __init__(self, places: WritablePlaces, folder: str | None) -> None:
        self._places = places
        self._folder = folder
        self._nested = 0
        self.results: list[WritableCode] = []

    def check_program(self, program: str, arguments: Sequence[str], role: str) -> None:
        """Check a program, what its first lines name, and its arguments."""
        self._check_path(program, role)
        self._check_libraries(program)
        for interpreter, options in _read_interpreters(program):
            if self._nested < MAX_NESTED_INTERPRETERS:
                self._nested += 1
                self.check_program(interpreter, options, f"the interpreter of {program}")
        kinds = (program, os.path.realpath(program))
        named = next((each for each in kinds if find_launcher(each) is not None), program)
        for word in classify_words(named, arguments):
            self._check_relative(word, find_launcher(named))
            self.check_word(word)

    def _check_relative(self, word: ProgramWord, launcher: str | None) -> None:
        """Raise CommandError if a script is named in the start folder, which is empty."""
        is_script = word.is_code and launcher in INTERPRETERS and word.text.endswith(CODE_SUFFIXES)
        if is_script and self._folder is None and not word.text.startswith(("-", "/", "~")):
            raise CommandError(
                f"{word.role} is `{word.text}`, and the program starts in an empty folder. Give the whole path "
                f"of the script, in a folder that no agent works in."
            )

    def check_word(self, word: ProgramWord) -> None:
        """Check what a word of the command line names."""
        candidates = list(self._list_paths(word.text))
        for path in candidates:
            if word.is_code or _is_code_file(path):
                self._check_path(path, word.role)
                self._check_modules(path, word.role)
                if word.is_code and os.path.isabs(word.text) and find_launcher(word.text) is not None:
                    self._check_libraries(path)
        if word.is_code and not any(each.role == word.role for each in self.results):
            for path in _find_mentions(word.text, self._places.folders):
                if self._places.includes(path):
                    self.results.append(WritableCode(word.role, path))

    def _list_paths(self, text: str) -> Iterator[str]:
        """Yield the absolute paths that a word may name, with relative ones in the start folder."""
        parts = (
            text,
            text.partition("=")[2],
            *_SEPARATORS.split(text),
            text[text.find("/") :] if "/" in text else "",
        )
        for part in dict.fromkeys(parts):
            path = os.path.expanduser(re.sub(r"^(?:git\+)?file:(?://)?", "", part))
            if path.startswith("/"):
                yield path
            elif self._folder is not None and path and not path.startswith("-"):
                yield os.path.join(self._folder, path)

    def _check_path(self, path: str, role: str) -> None:
        for step in (*list_path_steps(path), os.path.realpath(path)):
            if self._places.includes(step):
                self.results.append(WritableCode(role, step, self._find_unit(step)))
                return

    # ── Installations ──

    def _check_libraries(self, program: str) -> None:
        """Check the packages of a Python interpreter: links and files that lead to writable places."""
        for path in dict.fromkeys((program, os.path.realpath(program))):
            if find_launcher(path) not in ("python", "pypy") or os.path.basename(os.path.dirname(path)) != "bin":
                continue
            prefix = os.path.dirname(os.path.dirname(path))
            self._check_nested_places(f"{prefix.rstrip('/')}/lib", f"the environment {prefix}")
            self._check_text(f"{prefix}/pyvenv.cfg", prefix)
            for root in (prefix, "/usr/local") if prefix in ("/", "/usr") else (prefix,):
                for packages in _list_packages(root):
                    self._check_entries(packages, prefix)

    def _check_entries(self, packages: str, prefix: str) -> None:
        for entry in _scan(packages):
            if entry.is_symlink():
                self._check_path(entry.path, f"a package of {prefix}")
            elif entry.name.endswith((".pth", ".egg-link")) or entry.name.startswith("__editable__"):
                self._check_text(entry.path, prefix)

    def _check_text(self, file: str, prefix: str) -> None:
        """Check the paths in a small file, such as those of an editable installation."""
        text = _read(file, MAX_SCANNED_BYTES).decode(errors="replace")
        for path in dict.fromkeys(re.findall(r"/[^\s'\",;]+", text)):
            self._check_path(path, f"an editable package of {prefix}")

    def _check_modules(self, path: str, role: str) -> None:
        """Check the `node_modules` folders that a script can load packages from."""
        if not path.endswith((".js", ".mjs", ".cjs", ".ts", ".mts", ".cts")):
            return
        folder = os.path.dirname(os.path.realpath(path))
        while folder != "/":
            modules = f"{folder}/node_modules"
            self._check_path(modules, f"the packages of {role}")
            for entry in _scan(modules):
                scoped = _scan(entry.path) if entry.name.startswith("@") else ()
                for each in (entry, *scoped):
                    if each.is_symlink():
                        self._check_path(each.path, f"a package of {role}")
            folder = os.path.dirname(folder)

    def _check_nested_places(self, root: str, role: str) -> None:
        for folder in self._places.folders:
            if folder != root and is_within(folder, root) and self._places.includes(folder):
                self.results.append(WritableCode(role, folder))

    # ── Units to pin ──

    def _find_unit(self, path: str) -> str | None:
        """Return what to pin for a path: its environment, its `node_modules`, its project or its folder, if a
        writable folder is not the same; else the file alone."""
        outer = [folder for folder in self._places.folders if is_within(path, folder)]
        inside = [
            folder
            for folder in _list_parents(path)
            if all(is_within(folder, each) and folder != each for each in outer)
        ]
        modules = [folder for folder in inside if os.path.basename(folder) == "node_modules"]
        if modules:
            return modules[-1]
        for folder in inside:
            if os.path.exists(f"{folder}/pyvenv.cfg") or any(
                os.path.exists(f"{folder}/{name}") for name in _ROOT_FILES
            ):
                return folder
        if os.path.isdir(path):
            return path if path in inside else None
        return inside[0] if inside else path


def _list_parents(path: str) -> list[str]:
    """Return a folder and its parents, the innermost first; for a file, its folder and so on."""
    found = [path] if os.path.isdir(path) else []
    while path != "/":
        path = os.path.dirname(path)
        found.append(path)
    return found


def _read_interpreters(program: str) -> Iterator[tuple[str, list[str]]]:
    """Yield the programs that the first two lines of a script start, with their words."""
    head = _read(program, MAX_HEAD_BYTES, is_head=True)
    if not head.startswith(b"#!"):
        return
    first, _, rest = head[2:].decode(errors="replace").partition("\n")
    words = first.split()
    if words and words[0].startswith("/"):
        yield words[0], words[1:]
    second = rest.partition("\n")[0]
    if "exec" in second:  # the launchers of installers whose interpreter has a long path
        for path in re.findall(r"/[^\s'\"]+", second):
            yield path, []


def _is_code_file(path: str) -> bool:
    if path.casefold().endswith(CODE_SUFFIXES):
        return True
    if not os.path.isfile(path):
        return False
    return os.access(path, os.X_OK) or _read(path, 4, is_head=True).startswith((b"#!", b"\x7fELF"))


def _list_packages(prefix: str) -> Iterable[str]:
    from glob import escape, glob

    return [path for pattern in _PACKAGES for path in glob(f"{escape(prefix)}/{pattern}")]


def _scan(folder: str) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError:
        return []


def _read(path: str, limit: int, *, is_head: bool = False) -> bytes:
    """Return the content of a regular file; nothing if it is larger, unless only its head is wanted."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            data = file.read(limit + 1)
    except OSError:
        return b""
    return data[:limit] if is_head or len(data) <= limit else b""


def _find_mentions(text: str, folders: Sequence[str]) -> Iterator[str]:
    """Yield the paths in a text that begin with one of these folders."""
    for folder in folders:
        for found in re.finditer(re.escape(folder) + r"(?![\w.-])[^\s'\":;,)]*", text):
            yield found[0].rstrip("/") or "/"
