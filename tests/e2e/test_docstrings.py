"""The examples in the docstrings of the public API run as they stand, with a fake model and a real server."""

import inspect
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import treadle
from tests.e2e.scripted_endpoint import says, serve, write_home
from tests.patience import HANG_SECONDS
from tests.surfaces.http.process import Serving
from tests.surfaces.shell import Shell

DATA = ("treadle.domain.events", "treadle.domain.transcript")
"""Where the data of events and the items of transcripts are defined. They are read, not made: the examples of
`Event` and `RunStream` show how."""
NAMES = [name for name in treadle.__all__ if not getattr(treadle, name).__module__.startswith(DATA)]


def examples_of(docstring: str) -> list[str]:
    """Return the indented blocks of a docstring."""
    found: list[str] = []
    block: list[str] = []
    for line in [*docstring.splitlines(), "end"]:
        if line.startswith("    ") or (block and not line.strip()):
            block.append(line)
        elif block:
            found.append(textwrap.dedent("\n".join(block)).strip())
            block = []
    return found


def make_program(example: str) -> str:
    """Return an example as a program; one that awaits becomes a coroutine."""
    if ("await " not in example and "async with" not in example) or "async def" in example:
        return f"import treadle\n{example}\n"
    return f"import asyncio, treadle\nasync def main():\n{textwrap.indent(example, '    ')}\nasyncio.run(main())\n"


@pytest.mark.parametrize("name", NAMES)
def test_the_examples_of_a_docstring_run(name: str, tmp_path: Path) -> None:
    examples = examples_of(inspect.getdoc(getattr(treadle, name)) or "")
    assert examples, f"treadle.{name} shows no example of its use"
    with serve(policy=lambda _: says("It is fine.")) as endpoint:
        environment = os.environ | write_home(tmp_path / "home", endpoint.url)
        config = tmp_path / "home" / "config.yaml"
        config.write_text(config.read_text().replace("fake", "provider"))
        serving = Serving(Shell(tmp_path / "home"))
        if "Client" in name:
            serving.start()
        for example in examples:
            program = make_program(example).replace("http://127.0.0.1:8420", serving.url)
            done = subprocess.run(
                [sys.executable, "-c", program.replace("trd_...", serving.token)],
                cwd=tmp_path,
                env=environment,
                capture_output=True,
                text=True,
                timeout=HANG_SECONDS,
                check=False,
            )
            assert (done.returncode, done.stderr) == (0, ""), example
            assert "print(" not in example or "It is fine." in done.stdout
        if "Client" in name:
            serving.stop()
