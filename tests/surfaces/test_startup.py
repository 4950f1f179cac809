"""What commands import: start-up time is mostly imports. `python -m bench.startup` measures the time itself."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from tests.fake_endpoint import FakeEndpoint, says
from tests.surfaces.http.process import Serving
from tests.surfaces.http.served_home import write_home
from tests.surfaces.shell import Shell

MODULES = {
    "--help": 76, "runs list": 466, "sessions list": 469, "agents list": 460, "usage": 450, "approvals list": 457,
    "schedules list": 492, "hooks list": 492, "webhooks list": 492, "memory list": 478, "tokens list": 465,
    "vault list": 412, "skills list": 420, "mcp list": 420,
}  # fmt: skip
"""The most modules that a command may import. Raise a limit only with the figures of the benchmark."""
HEAVY = (
    "pydantic", "starlette", "aiohttp", "uvicorn", "cryptography", "tree_sitter", "jsonschema_rs", "genai_prices",
    "rich", "textual", "mcp", "acp", "numpy", "pathspec", "treadle.engine.loop", "treadle.models", "treadle.tools",
)  # fmt: skip
LISTED = """
import atexit, sys
atexit.register(lambda: print(*sys.modules, file=sys.stderr))
from treadle.surfaces.cli import main
main()
"""


RUN_HEAVY = (
    "pydantic", "starlette", "uvicorn", "cryptography", "tree_sitter", "jsonschema_rs", "genai_prices", "textual",
    "mcp.", "acp", "numpy", "importlib.metadata", "treadle.domain.written_calls", "treadle.models.http.error_facts",
    "treadle.models.http.reasoning_errors", "treadle.models.formats.call_dialects",
)  # fmt: skip
"""Besides libraries, what a run needs only if there are plugins, or for an error or a call in a text."""


def list_imports(words: Sequence[str], environment: Mapping[str, str]) -> list[str]:
    """Return the modules that a command has imported when it ends. As with the installed command, the current
    folder is not on the search path."""
    code = f"import sys; sys.argv = ['treadle', *{list(words)!r}]{LISTED}"
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], capture_output=True, text=True, env=environment, check=True
    )
    return done.stderr.splitlines()[-1].split()


@pytest.mark.parametrize("command", MODULES)
def test_a_command_imports_only_what_it_needs(command: str, tmp_path: Path) -> None:
    environment = {**os.environ, "TREADLE_HOME": str(tmp_path / "home")}
    modules = list_imports(command.split(), environment)
    assert [name for name in modules if name.startswith(HEAVY)] == []
    assert len(modules) <= MODULES[command], len(modules)


async def test_a_run_and_commands_attached_to_a_server_import_only_what_they_need(tmp_path: Path) -> None:
    async with FakeEndpoint(policy=lambda _: says("Done.")) as endpoint:
        write_home(tmp_path / "home", endpoint.url)
        serving = Serving(Shell(tmp_path / "home"))
        run, environment = ("run", "-a", "one", "Hello."), serving.shell.environment
        alone = await asyncio.to_thread(list_imports, run, environment)
        await asyncio.to_thread(serving.start)
        for words in (run, ("runs", "list"), ("mcp", "list"), ("approvals", "list")):
            modules = await asyncio.to_thread(list_imports, words, environment)
            heavy = RUN_HEAVY if words == run else HEAVY
            assert [name for name in modules if name.startswith(heavy)] == [], words
        assert [name for name in alone if name.startswith(RUN_HEAVY)] == []
        serving.stop()
