"""Which code a program would load from a folder that a run can write, whatever names it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from treadle.domain.writable_places import WritablePlaces
from treadle.ports.sandbox import CommandError
from treadle.sandbox.contents import ContentFolder, hash_content
from treadle.sandbox.program_code import find_writable_code

PYTHON = "/usr/bin/python3" if Path("/usr/bin/python3").exists() else sys.executable


class Machine:
    """A workspace with code, and a folder for tools that no run can write."""

    def __init__(self, root: Path) -> None:
        self.workspace, self.tools = root / "w", root / "tools"
        for file in ("server.py", "dist/index.js", "node_modules/.bin/x", "run.sh", "sub/a/server.py", "data.db"):
            path = self.workspace / file
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("x")
        (self.workspace / "node_modules/.bin/x").chmod(0o755)
        (self.tools / "bin").mkdir(parents=True)
        self.places = WritablePlaces((str(self.workspace),))

    def find(self, *argv: str, **environment: str) -> list[str]:
        """Return the roles of writable code. `W` and `T` stand for the workspace and the tools."""
        words = [self.expand(word) for word in argv]
        given = {name: self.expand(value) for name, value in environment.items()}
        return [code.role for code in find_writable_code(words, given, None, self.places)]

    def expand(self, text: str) -> str:
        return (
            text.replace("W/", f"{self.workspace}/")
            .replace("T/", f"{self.tools}/")
            .replace("W.", str(self.workspace))
        )

    def write(self, name: str, text: str) -> str:
        path = self.tools / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        path.chmod(0o755)
        return str(path)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    "argv",
    [
        ["W/node_modules/.bin/x"],
        ["W/run.sh"],
        [PYTHON, "W/server.py"],
        [PYTHON, "-u", "W/server.py"],
        [PYTHON, "-X", "dev", "W/server.py"],
        [PYTHON, "W/sub/../server.py"],
        [PYTHON, "-c", "import sys; sys.path.insert(0, 'W.'); import server"],
        [PYTHON, "-cexec(open('W/server.py').read())"],
        ["/usr/bin/node", "W/dist/index.js"],
        ["/usr/bin/node", "--require", "W/dist/index.js", "/opt/x.js"],
        ["/usr/bin/node", "--import=file://W/dist/index.js", "/opt/x.js"],
        ["/usr/bin/node", "-rW/dist/index.js", "/opt/x.js"],
        ["/usr/bin/nodejs", "W."],
        ["/opt/uv", "run", "--directory", "W.", "server"],
        ["/opt/uv", "--directory=W.", "run", "server"],
        ["/opt/uv", "run", "--with", "mcp", "mcp", "run", "W/server.py"],
        ["/opt/uv", "run", "--project", "/opt/p", "python", "W/server.py"],
        ["/opt/uvx", "--from", "W.", "server"],
        ["/opt/uvx", "--from", "git+file://W.", "server"],
        ["/opt/npx", "--prefix", "W.", "x"],
        ["/opt/npx", "-y", "--package=W.", "--", "x"],
        ["/opt/npx", "file:W."],
        ["/opt/npm", "--prefix", "W.", "run", "start"],
        ["/opt/deno", "run", "-A", "W/dist/index.js"],
        ["/opt/bun", "run", "--cwd", "W.", "start"],
        ["/opt/java", "-cp", "/opt/a.jar:W/lib.jar", "Main"],
        ["/opt/java", "-jar", "W/server.jar"],
        ["/opt/dotnet", "run", "--project", "W."],
        ["/opt/poetry", "-C", "W.", "run", "server"],
        ["/bin/sh", "-c", "cd W. && python -m server"],
        ["/bin/sh", "-c", 'cd "$1" && python -m server', "sh", "W."],
        ["/bin/bash", "W/run.sh"],
        ["/usr/bin/env", "PYTHONPATH=W.", "python3", "-m", "server"],
        ["/usr/bin/env", "-C", "W.", "python3", "-m", "server"],
        ["/usr/bin/env", "python3", "W/server.py"],
        ["/usr/bin/timeout", "60", "python3", "W/server.py"],
        ["/opt/unknown", "--plugin", "W/plugin.py"],
        ["/opt/unknown", "--plugin=W/plugin.so"],
        ["/opt/unknown", "W/node_modules/.bin/x"],
    ],
    ids=" ".join,
)
def test_code_in_a_writable_folder_is_found(machine: Machine, argv: list[str]) -> None:
    assert machine.find(*argv)


@pytest.mark.parametrize(
    "argv",
    [
        [PYTHON, "-m", "mcp_server_git", "--repository", "W."],
        [PYTHON, "T/server.py", "W.", "--db=W/data.db"],
        ["/usr/bin/node", "T/index.js", "W."],
        ["/opt/npx", "-y", "@modelcontextprotocol/server-filesystem", "W."],
        ["/opt/uvx", "mcp-server-git", "--repository", "W."],
        ["/opt/uv", "run", "--directory", "/opt/server", "server", "W."],
        ["/opt/mcp-server-sqlite", "--db-path", "W/data.db"],
        ["/usr/bin/env", "MODE=fast", "mcp-server-git", "--repository", "W."],
        ["/bin/sh", "-c", "exec mcp-server-time"],
    ],
    ids=" ".join,
)
def test_data_in_a_writable_folder_is_not_code(machine: Machine, argv: list[str]) -> None:
    assert machine.find(*argv) == []


@pytest.mark.parametrize(
    "name", ["PYTHONPATH", "NODE_PATH", "NODE_OPTIONS", "LD_PRELOAD", "BASH_ENV", "npm_config_prefix", "UV_PROJECT"]
)
def test_variables_that_name_code_are_checked(machine: Machine, name: str) -> None:
    assert machine.find("/opt/x", **{name: "/opt/a:W/lib"}) == [f"the variable {name}"]
    assert machine.find("/opt/x", **{name: "/opt/a"}) == []
    assert machine.find("/opt/x", MEMORY_FILE_PATH="W/memory.json") == []


def test_links_and_scripts_that_lead_to_a_writable_folder_are_found(machine: Machine) -> None:
    (machine.tools / "bin" / "linked").symlink_to(machine.workspace / "run.sh")
    (machine.workspace / "out").symlink_to(PYTHON)
    (machine.tools / "bin" / "through").symlink_to(machine.workspace / "out")
    for program in ("linked", "through"):
        assert machine.find(str(machine.tools / "bin" / program)) == ["its program"]
    shebang = machine.write("bin/a", f"#!{machine.workspace}/.venv/bin/python\n")
    assert machine.find(shebang) == [f"the interpreter of {shebang}"]
    through_env = machine.write("bin/b", f"#!/usr/bin/env -S {machine.workspace}/.venv/bin/python\n")
    assert machine.find(through_env)
    long = machine.write(
        "bin/c", f"#!/bin/sh\n'''exec' {machine.workspace}/.venv/bin/python \"$0\" \"$@\"\n' '''\n"
    )
    assert machine.find(long)


def test_the_packages_of_an_environment_are_checked(machine: Machine) -> None:
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", machine.tools / "venv"], check=True)
    program = machine.tools / "venv" / "bin" / "python"
    packages = next((machine.tools / "venv" / "lib").glob("python3*")) / "site-packages"
    assert machine.find(str(program), "-m", "server") == []
    (packages / "__editable__.server-1.pth").write_text(f"{machine.workspace}/src\n")
    assert machine.find(str(program), "-m", "server") == [f"an editable package of {machine.tools}/venv"]
    (packages / "__editable__.server-1.pth").unlink()
    (packages / "server").symlink_to(machine.workspace / "sub")
    assert machine.find(str(program), "-m", "server") == [f"a package of {machine.tools}/venv"]
    (packages / "server").unlink()
    machine.places = WritablePlaces((str(packages / "server"),))
    assert machine.find(str(program), "-m", "server") == [f"the environment {machine.tools}/venv"]


def test_the_packages_of_a_script_are_checked(machine: Machine) -> None:
    script = machine.write("server/index.js", "")
    assert machine.find("/usr/bin/node", script) == []
    (machine.tools / "server" / "node_modules" / "@scope").mkdir(parents=True)
    (machine.tools / "server" / "node_modules" / "@scope" / "x").symlink_to(machine.workspace / "sub")
    assert machine.find("/usr/bin/node", script) == ["a package of argument 1"]
    machine.places = WritablePlaces((str(machine.tools / "node_modules"),))
    assert machine.find("/usr/bin/node", script) == ["the packages of argument 1"]


def test_what_is_protected_in_a_workspace_is_not_writable(machine: Machine) -> None:
    own = str(machine.workspace / "sub")
    machine.places = WritablePlaces((str(machine.workspace),), (own,))
    assert machine.find(PYTHON, "W/sub/a/server.py") == []
    assert machine.find(PYTHON, "W/server.py") == ["argument 1"]


def test_the_unit_to_pin_is_the_smallest_whole(machine: Machine) -> None:
    def find_unit(*argv: str) -> str | None:
        words = [machine.expand(word) for word in argv]
        return find_writable_code(words, {}, None, machine.places)[0].unit

    workspace = machine.workspace
    (workspace / "env" / "bin").mkdir(parents=True)
    (workspace / "env" / "pyvenv.cfg").touch()
    (workspace / "env" / "bin" / "python").symlink_to(PYTHON)
    assert find_unit("W/env/bin/python", "-m", "x") == str(workspace / "env")
    assert find_unit("W/node_modules/.bin/x") == str(workspace / "node_modules")
    assert find_unit(PYTHON, "W/sub/a/server.py") == str(workspace / "sub" / "a")
    (workspace / "sub" / "pyproject.toml").touch()
    assert find_unit(PYTHON, "W/sub/a/server.py") == str(workspace / "sub")
    assert find_unit(PYTHON, "W/server.py") == str(workspace / "server.py")
    assert find_unit("/opt/uv", "run", "--directory", "W.", "x") is None


# ── Contents ──


def test_every_change_of_pinned_content_is_noticed(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "sub").mkdir(parents=True)
    (tree / "sub" / "a.py").write_text("1")
    (tree / "link").symlink_to("sub/a.py")
    places = WritablePlaces((str(tmp_path),))
    seen = {hash_content(str(tree), places)}

    def change(act: object) -> None:
        digest = hash_content(str(tree), places)
        assert digest not in seen, act
        seen.add(digest)

    change((tree / "sub" / "a.py").write_text("2"))
    change((tree / "sub" / "a.py").chmod(0o755))
    change((tree / "sub" / "b.py").write_text(""))
    change((tree / "sub" / "b.py").rename(tree / "b.py"))
    change((tree / "empty").mkdir())
    (tree / "link").unlink()
    change((tree / "link").symlink_to("b.py"))
    (tree / "sub" / "__pycache__").mkdir()
    (tree / "sub" / "__pycache__" / "a.pyc").write_bytes(b"x")
    assert hash_content(str(tree), places) in seen, "compiled files are neither hashed nor copied"


def test_content_that_cannot_be_pinned_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree, places = tmp_path / "tree", WritablePlaces((str(tmp_path),))
    tree.mkdir()
    (tree / "out").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(CommandError, match=r"links to .*elsewhere, which a run can write"):
        hash_content(str(tree), places)
    (tree / "out").unlink()
    os.mkfifo(tree / "pipe")
    with pytest.raises(CommandError, match="is not a file"):
        hash_content(str(tree), places)
    (tree / "pipe").unlink()
    (tree / "big").write_bytes(b"12345")
    monkeypatch.setattr("treadle.sandbox.contents.MAX_BYTES", 4)
    with pytest.raises(CommandError, match=r"cannot be pinned by content\. Install it in a folder"):
        hash_content(str(tree), places)


async def test_a_copy_has_the_hash_of_its_content_and_no_compiled_files(tmp_path: Path) -> None:
    tree = tmp_path / "tree"
    (tree / "__pycache__").mkdir(parents=True)
    (tree / "__pycache__" / "a.pyc").write_bytes(b"evil")
    (tree / "a.py").write_text("1")
    contents = ContentFolder(tmp_path / "contents")
    digest = await contents.keep(str(tree))
    assert digest == await contents.measure(str(tree))
    copy = contents.find(digest)
    assert copy is not None
    assert os.listdir(copy) == ["a.py"]
    contents.remove_unused(frozenset())
    assert contents.find(digest) is None
