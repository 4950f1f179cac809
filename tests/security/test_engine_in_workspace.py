"""The quick start: the workspace contains the virtual environment and the package that Treadle runs from. Nothing
that an agent does there runs outside its sandbox, and ordinary work goes on."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

import treadle
from tests.sandbox.conftest import needs_bubblewrap

PACKAGE = Path(treadle.__file__).parent
PROGRAM = """
import asyncio, sys
import treadle
from treadle.system.helper_process import run_helper
from treadle.testing.models import ScriptedModel, ask, call, say

async def main(home, work, *commands):
    steps = [ask(call("bash", f"c{n}", command=line)) for n, line in enumerate(commands)]
    model = ScriptedModel(*steps, say("done"))
    engine = treadle.Engine("sqlite:///:memory:", home=home)
    engine.add_model("scripted", model)
    async with engine:
        agent = treadle.Agent(
            name="hero", model="scripted/x", tools=["bash"], workspace=work, sandbox={"mode": "required"}
        )
        result = await engine.run(agent, "go")
        async for event in engine.events(result.run_id):
            if event.type in ("tool_call_end", "tool_call_error"):
                print(event.data.content)
            if event.type == "run_end":
                break

asyncio.run(main(*sys.argv[1:]))
run_helper("treadle.sandbox.limits")  # it has no `main`, but the interpreter starts
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = Path(os.path.realpath(tmp_path_factory.mktemp("quick-start"))) / "project"
    shutil.copytree(PACKAGE, folder / "src" / "treadle", ignore=shutil.ignore_patterns("dashboard"))
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder / ".venv")], check=True)
    site = next((folder / ".venv" / "lib").glob("python*/site-packages"))
    (site / "project.pth").write_text(f"{folder / 'src'}\n")
    (site / "packages.pth").write_text("\n".join(path for path in sys.path if path.endswith("-packages")))
    return folder


def run(project: Path, tmp_path: Path, *commands: str) -> str:
    """Run these commands of an agent with the Treadle in the project. Return their results."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    ended = subprocess.run(
        [str(project / ".venv" / "bin" / "python"), str(program), str(tmp_path / "home"), str(project), *commands],
        cwd=tmp_path,
        env={"PATH": os.environ["PATH"], "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    return ended.stdout + ended.stderr


@needs_bubblewrap
def test_a_run_cannot_execute_code_through_the_environment_of_treadle(project: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    code = f"open('{trace}', 'a').write('ran')"
    late = "src/treadle/tools/shell/exit_status.py"  # imported when the first command fails
    attacks = (
        f'echo "{code}" >> {late}; false',
        f'cd .venv/lib/python*/site-packages; echo "import os; {code}" > evil.pth; '
        f"echo to .venv/lib/site-packages; false",
        f'echo "{code}" > src/sitecustomize.py; echo "{code}" > .venv/lib/keyring.py; '
        f"mv src old; mv .venv old; mkdir -p src/treadle; false",
    )
    shown = run(project, tmp_path, *attacks)
    assert "Read-only file system" in shown, shown
    assert shown.count("uv tool install treadle") == len(attacks), shown
    assert not trace.exists()
    assert (project / late).read_text() == (PACKAGE / "tools" / "shell" / "exit_status.py").read_text()


@needs_bubblewrap
def test_ordinary_work_goes_on_next_to_the_environment_of_treadle(project: Path, tmp_path: Path) -> None:
    shown = run(
        project,
        tmp_path,
        "mkdir -p tests && echo 'from unittest import TestCase as Test' > tests/test_it.py && echo x > README.md",
        ".venv/bin/python -m unittest -v tests.test_it 2>&1",
        "git init -q . && git add tests README.md && git -c user.name=a -c user.email=a@b commit -qm first "
        "&& git status --short && git log --oneline",
    )
    assert "OK" in shown, shown
    assert "first" in shown, shown
