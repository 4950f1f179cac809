"""The example of docs/openai.md runs as it stands."""

import asyncio
import os
import re
import sys
from pathlib import Path

from tests.fake_endpoint import says
from tests.surfaces.http.compatible import in_time, talking

PAGE = Path(__file__).parents[3] / "docs" / "openai.md"


def test_the_example_runs(tmp_path: Path) -> None:
    [program] = re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)

    async def perform() -> None:
        async with talking(tmp_path, says("A loom."), says("Hello, Ada."), says("You are Ada.")) as talk:
            given = os.environ | {"TREADLE_URL": talk.server.url, "TREADLE_TOKEN": await talk.server.mint("run")}
            process = await asyncio.create_subprocess_exec(
                sys.executable, "-c", program, env=given, stdout=asyncio.subprocess.PIPE
            )
            printed, _ = await process.communicate()
            assert printed.decode().splitlines() == ["A loom.", "You are Ada."]
            assert [one["content"] for one in talk.sent] == ["My name is Ada.", "Hello, Ada.", "Who am I?"]

    in_time(perform())
