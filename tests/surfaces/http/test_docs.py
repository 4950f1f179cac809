"""The examples of docs/openai.md and docs/http-api.md run as they stand, against a server."""

import asyncio
import os
import shutil
import sys
from pathlib import Path

import pytest

from tests.documentation import DOCS, blocks
from tests.fake_endpoint import says
from tests.surfaces.http.compatible import Talking, talking
from treadle.domain.access import Scope


async def run(talk: Talking, command: list[str], *scopes: Scope) -> tuple[int | None, str]:
    token = await talk.server.mint(*scopes)
    process = await asyncio.create_subprocess_exec(
        *command,
        env=os.environ | {"TREADLE_URL": talk.server.url, "TREADLE_TOKEN": token},
        stdout=asyncio.subprocess.PIPE,
    )
    printed, _ = await process.communicate()
    return process.returncode, printed.decode()


async def test_the_openai_example_runs(tmp_path: Path) -> None:
    [program] = blocks(DOCS / "openai.md", "python")
    async with talking(tmp_path, says("A loom."), says("Hello, Ada."), says("You are Ada.")) as talk:
        code, printed = await run(talk, [sys.executable, "-c", program.text], "run")
        assert (code, printed.splitlines()) == (0, ["A loom.", "You are Ada."])
        assert [one["content"] for one in talk.sent] == ["My name is Ada.", "Hello, Ada.", "Who am I?"]


@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
async def test_the_http_example_runs(tmp_path: Path) -> None:
    [script] = blocks(DOCS / "http-api.md", "bash")
    async with talking(tmp_path, says("Threads cross in the light.")) as talk:
        code, printed = await run(talk, ["bash", "-euc", script.text], "read", "run")
        assert code == 0
        assert "Threads cross in the light." in printed
