"""What commands import: start-up time is mostly imports. `python -m bench.startup` measures the time itself."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

MODULES = {"--help": 90, "runs list": 480, "sessions list": 480, "agents list": 480, "usage": 480}
"""The most modules that a command may import. Raise a limit only with the figures of the benchmark."""
HEAVY = (
    "pydantic", "litestar", "aiohttp", "uvicorn", "cryptography", "tree_sitter", "jsonschema_rs", "genai_prices",
    "rich", "textual", "mcp", "acp", "numpy", "treadle.engine.loop", "treadle.models", "treadle.tools",
)  # fmt: skip
LISTED = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
from treadle.surfaces.cli import main
main()
"""


@pytest.mark.parametrize("command", MODULES)
def test_a_command_imports_only_what_it_needs(command: str, tmp_path: Path) -> None:
    environment = {**os.environ, "TREADLE_HOME": str(tmp_path / "home")}
    code = f"import sys; sys.argv = ['treadle', *{command.split()!r}]{LISTED}"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, check=True)
    modules = done.stderr.splitlines()[-1].split()
    assert [name for name in modules if name.startswith(HEAVY)] == []
    assert len(modules) <= MODULES[command], len(modules)
