"""The programs and scripts in the documentation run as they stand. A fake model answers them on loopback."""

import asyncio
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.documentation import ROOT, WRITTEN, Block, blocks, name_of
from tests.fake_endpoint import DONE, Answer, Behaviour, FakeEndpoint, Request, delta, fragment, says
from tests.patience import HANG_SECONDS

NEED_A_SERVER = ("openai.md", "http-api.md")
"""Pages whose programs talk to `treadle serve`: see tests/surfaces/http/test_docs.py."""
README = ROOT / "README.md"
PROGRAMS = [
    block
    for page in WRITTEN
    if page != README and page.name not in NEED_A_SERVER
    for block in blocks(page, "python")
]
SCRIPTED = [page for page in WRITTEN if page.name not in NEED_A_SERVER and blocks(page, "bash")]


def reply(request: Request) -> Behaviour:
    """Answer as a model that calls `add` for a sum and runs a command in backticks."""
    if not request.path.endswith("/chat/completions"):
        return Answer([b"{}"], 404, {"Content-Type": "application/json"})
    body = request.json
    messages: list[Any] = [each for each in body["messages"] if each["role"] != "system"]
    last, text = messages[-1], str(messages[-1]["content"])
    if last["role"] == "tool":
        return says(f"It is {text.splitlines()[-1]}.")
    names = {tool["function"]["name"] for tool in body.get("tools", ())}
    if "add" in names and (found := re.search(r"(\d+) \+ (\d+)", text)):
        return calls("add", f'{{"a": {found[1]}, "b": {found[2]}}}')
    if "bash" in names and (found := re.search(r"Run `([^`]+)`", text)):
        return calls("bash", f'{{"command": "{found[1]}"}}')
    if "JSON" in str(body["messages"][0]["content"]):
        return says('{"title": "Looms", "tags": ["craft"]}')
    return says("Threads cross in the light.")


def calls(tool: str, arguments: str) -> Behaviour:
    return Answer([delta(tool_calls=[fragment(0, "call_1", tool, arguments)]), delta(finish="tool_calls"), DONE])


async def run(command: list[str], tmp_path: Path, url: str) -> tuple[int, str, str]:
    """Run a command with a home that has a default model, and return its exit code and its output."""
    home = tmp_path / "home"
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text("defaults: {model: ollama/qwen3}\n")
    environment = {
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "TREADLE_HOME": str(home),
        "OLLAMA_HOST": url.removesuffix("/v1"),
    }
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=tmp_path,
        env=environment,
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    async with asyncio.timeout(HANG_SECONDS):
        out, err = await process.communicate()
    assert process.returncode is not None
    return process.returncode, out.decode(), err.decode()


@pytest.mark.parametrize("block", PROGRAMS, ids=lambda block: f"{name_of(block.page)}:{block.line}")
async def test_documented_programs_run(block: Block, tmp_path: Path) -> None:
    async with FakeEndpoint(policy=reply) as server:
        code, out, err = await run([sys.executable, "-c", block.text], tmp_path, server.url)
        assert (code, err) == (0, "")
        for line in re.findall(r"print\(.*\)  # (.+)$", block.text, re.MULTILINE):
            assert line in out


@pytest.mark.parametrize("page", SCRIPTED, ids=name_of)
async def test_documented_scripts_run(page: Path, tmp_path: Path) -> None:
    async with FakeEndpoint(policy=reply) as server:
        script = "\n".join(["set -eu", *(block.text for block in blocks(page, "bash"))])
        code, _, err = await run(["bash", "-c", script], tmp_path, server.url)
        assert code == 0, err


async def test_the_readme_program_prints_the_sum(tmp_path: Path) -> None:
    [program] = blocks(README, "python")
    async with FakeEndpoint(policy=reply) as server:
        code, out, err = await run([sys.executable, "-c", program.text], tmp_path, server.url)
        assert (code, err) == (0, "")
        assert out.splitlines() == ["It is 5.", "It is 9."]
