"""No module starts a process in a way of its own: helpers are started by `treadle.system.helper_process`, isolated.

The source is read, not run. A module that has a reason to start a process itself is listed with it."""

import ast
import re
from pathlib import Path

import pytest

SOURCE = Path(__file__).parent.parent / "src" / "treadle"
FILES = sorted(path.relative_to(SOURCE).as_posix() for path in SOURCE.rglob("*.py"))

ALLOWED = {
    "system/helper_process.py": "starts every Python helper: isolated, fixed path, an environment from scratch",
    "sandbox/broker.py": "forks a supervisor for each command; it is a helper itself",
    "sandbox/supervisor.py": "forks and becomes the command of an agent, in the environment that was built for it",
    "sandbox/broker_client.py": "names the type of the process that `helper_process` has started",
    "models/local/server_processes.py": "names the type of the process that `helper_process` has started",
    "testing/simulation/__main__.py": "a developer's command: spreads its own simulations over the processors",
    "sandbox/git_settings.py": "asks git for the names of settings, which runs nothing that a repository names",
    "surfaces/server/sign_in_link.py": "opens the browser that the user has chosen, on the user's own screen",
    "surfaces/terminal/clipboard.py": "reads the clipboard with the programs of the user's own desktop",
    "surfaces/terminal/editor.py": "opens the editor that the user has chosen, at the user's own terminal",
}
MODULES = {
    "subprocess",
    "multiprocessing",
    "pty",
    "pexpect",
    "sh",
    "webbrowser",
    "runpy",
    "concurrent.futures.process",
}
"""Modules whose purpose is to start another program, or code that a path names."""
OF_OS = {"system", "fork"}
"""Words that have other meanings elsewhere: they count on the module `os`, by whatever name it was imported."""
FUNCTIONS = {
    "popen", "forkpty", "vfork", "posix_spawn", "posix_spawnp", "startfile",
    "execl", "execle", "execlp", "execlpe", "execv", "execve", "execvp", "execvpe", "fexecve",
    "spawnl", "spawnle", "spawnlp", "spawnlpe", "spawnv", "spawnve", "spawnvp", "spawnvpe",
    "create_subprocess_exec", "create_subprocess_shell", "subprocess_exec", "subprocess_shell",
    "Popen", "ProcessPoolExecutor",
    "find_library", "getnode", "uuid1",  # ask other programs: gcc, ldconfig, ifconfig
}  # fmt: skip
"""Whatever object they are called on: an alias of `os` or an event loop does not hide them."""

WORDS = re.compile(rf"\b(?:{'|'.join(sorted({name.partition('.')[0] for name in MODULES} | OF_OS | FUNCTIONS))})\b")
"""A source without any of these is not parsed."""


def starts_in(source: str) -> list[str]:
    """Return each use of something that starts a process, as `line: name`."""
    if not WORDS.search(source):
        return []
    tree = ast.parse(source)
    system = {"os", "posix"} | {
        alias.asname or alias.name
        for node in ast.walk(tree)
        if isinstance(node, ast.Import)
        for alias in node.names
        if alias.name in {"os", "posix"}
    }
    return [f"{getattr(node, 'lineno', 0)}: {name}" for node in ast.walk(tree) for name in _starting(node, system)]


def _starting(node: ast.AST, system: set[str]) -> list[str]:
    match node:
        case ast.Import(aliases):
            return [alias.name for alias in aliases if set(_parts(alias.name)) & MODULES]
        case ast.ImportFrom(module, aliases) if not str(module).startswith("treadle"):
            forbidden = MODULES | FUNCTIONS | (OF_OS if module in system else set[str]())
            names = [f"{module}.{alias.name}" for alias in aliases]
            return [name for name in names if set(_parts(name)) & forbidden]
        case ast.Attribute(value=ast.Name(owner), attr=name) if owner in system and name in OF_OS:
            return [f"os.{name}"]
        case ast.Attribute(attr=name) | ast.Constant(value=str(name)) if name in FUNCTIONS:
            return [name]
        case _:
            return []


def _parts(name: str) -> list[str]:
    return [name, *name.split(".")]


def test_only_the_listed_modules_start_processes() -> None:
    found = {path: starts for path in FILES if (starts := starts_in((SOURCE / path).read_text()))}
    idle = [path for path in ALLOWED if path not in found]
    assert not idle, "these start nothing any more; take them off the list"
    others = {path: starts for path, starts in found.items() if path not in ALLOWED}
    assert not others, "these start a process themselves; use treadle.system.helper_process"


def test_one_module_starts_every_python_helper() -> None:
    naming = [path for path in FILES if "sys.executable" in (SOURCE / path).read_text()]
    in_sandbox = "evaluation/effects.py"  # a function of a suite is called by a command, as an agent runs one
    assert naming == [in_sandbox, "system/helper_process.py"]


@pytest.mark.parametrize(
    "source",
    [
        "import subprocess",
        "import subprocess as s",
        "from subprocess import run",
        "from asyncio import create_subprocess_exec",
        "from asyncio.subprocess import Process",
        "import asyncio.subprocess",
        "import os as o; o.execv('a', [])",
        "from os import posix_spawn",
        "import os; os.system('x')",
        "import os as o; o.fork()",
        "from os import fork",
        "getattr(os, 'popen')",
        "from concurrent.futures import ProcessPoolExecutor",
        "loop.subprocess_shell(p, 'x')",
        "import multiprocessing.pool as m; from multiprocessing import Process",
    ],
)
def test_the_check_finds_every_way_to_start_a_process(source: str) -> None:
    assert starts_in(source)
