"""The programs in `examples/` run as they stand."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.fake_endpoint import says
from tests.surfaces.http.served_home import serve_home

EXAMPLES = Path(__file__).parents[2] / "examples"
PRINTED = {
    "tool_and_agent.py": ["completed It is 24.5 degrees."],
    "structured_output.py": [
        "Article(title='Looms', tags=['craft'])",
        "Point(x=1.5, y=2.0)",
        "name='Ada' age=36",
        "whole: Article(title='Looms and their weavers', tags=['craft', 'history'])",
    ],
    "stream_to_page.py": ['data: "Threads"', 'data: " silence."', "event: end"],
    "approvals.py": ["Version 1.2 is on the test system.", "denied: ['deploy']"],
    "sub_agents.py": ["According to my researcher: before the year 1000, in China."],
    "mcp_program.py": ["It is 19:00.", "clock approved clock__now"],
    "foreign_tools.py": ["Three looms, at 890 euros each.", "price 890.0", "count 3"],
    "tracing.py": [
        "invoke_agent weather in GET /weather",
        "execute_tool temperature in invoke_agent weather",
        "1 trace",
    ],
    "hook.py": ["One message is on its way.", "Messages to rivals are not sent."],
}


def run(tmp_path: Path, *words: str, path: Path | None = None) -> str:
    environment = {**os.environ, "TREADLE_HOME": str(tmp_path / "home"), "HOME": str(tmp_path)}
    if path is not None:
        environment["PYTHONPATH"] = os.pathsep.join((str(path), environment.get("PYTHONPATH", "")))
    done = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", PRINTED)
def test_an_example_prints_what_it_promises(name: str, tmp_path: Path) -> None:
    printed = run(tmp_path, str(EXAMPLES / name), "--once")
    for line in PRINTED[name]:
        assert line in printed


def test_the_example_plugin_adds_its_tool(tmp_path: Path) -> None:
    folder = tmp_path / "treadle_dice-0.1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: treadle-dice\nVersion: 0.1.0\n")
    (folder / "entry_points.txt").write_text("[treadle.tools]\ndice = treadle_dice:TOOLS\n")
    (tmp_path / "treadle_dice.py").write_text((EXAMPLES / "plugin" / "treadle_dice.py").read_text())
    code = "from treadle.home.tool_names import list_known_tools; print('roll_dice' in list_known_tools())"
    assert run(tmp_path, "-c", code, path=tmp_path) == "True\n"


async def test_the_notebook_runs_inside_a_running_loop(capsys: pytest.CaptureFixture[str]) -> None:
    cells = json.loads((EXAMPLES / "notebook.ipynb").read_text())["cells"]

    names: dict[str, object] = {}
    for cell in cells:
        if cell["cell_type"] == "code":
            exec("".join(cell["source"]), names)
    assert capsys.readouterr().out == "Hello from a notebook.\n"


async def test_the_example_client_calls_a_server(tmp_path: Path) -> None:
    async def scenario() -> str:
        async with serve_home(tmp_path, says("Hello."), says("Hello again.")) as web:
            return await asyncio.to_thread(run, tmp_path, str(EXAMPLES / "client.py"), web.url, web.token, "one")

    assert await scenario() == "Hello.\nHello again.\n"


@pytest.mark.parametrize("name", ["test_agent.py", "test_fixtures.py"])
def test_the_example_tests_pass(name: str, tmp_path: Path) -> None:
    run(tmp_path, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(EXAMPLES / name))
