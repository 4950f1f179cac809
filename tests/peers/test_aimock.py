"""The three wire formats against a third-party server: aimock, with its chaos switches. `make peers` installs it
and runs this; without it the tests are skipped."""

import asyncio
import json
import subprocess
from collections.abc import Generator
from pathlib import Path
from typing import Any
from urllib.request import Request, urlopen

import pytest

import treadle
from treadle.api.engine import HostedEngine, create_engine
from treadle.config.home import Home
from treadle.domain.events import ToolCallEnd
from treadle.domain.providers import ApiMode

COMMAND = Path(__file__).parents[2] / ".peers" / "node_modules" / ".bin" / "llmock"
MODES: tuple[ApiMode, ...] = ("anthropic_messages", "chat_completions", "responses")
ANSWER = "Nothing in the hall."
CALLS = [{"name": "look", "arguments": json.dumps({"place": place})} for place in ("hall", "attic")]
FIXTURES = [
    {
        "match": {"userMessage": "hall", "hasToolResult": False},
        "response": {
            "content": "Let me look.",
            "toolCalls": [
                {"name": "look", "arguments": json.dumps({"place": place})} for place in ("hall", "attic")
            ],
        },
    },
    {"match": {"userMessage": "hall", "hasToolResult": True}, "response": {"content": ANSWER}},
]
RUNS = 8

pytestmark = pytest.mark.skipif(not COMMAND.exists(), reason="aimock is not installed; `make peers` does that")


@treadle.tool(effect="read", repeatable=True)
async def look(place: str) -> str:
    """Look somewhere."""
    return f"nothing in {place}"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Generator[str, None, None]:
    """The address of a server that is ready."""
    fixtures = tmp_path_factory.mktemp("aimock") / "fixtures.json"
    fixtures.write_text(json.dumps({"fixtures": FIXTURES}))
    command = [str(COMMAND), "--port", "0", "--fixtures", str(fixtures)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        line = next(line for line in process.stdout if "listening on" in line)
        try:
            yield line.split()[-1]
        finally:
            process.terminate()


def set_chaos(server: str, **rates: float) -> None:
    data = json.dumps(rates).encode()
    with urlopen(Request(f"{server}/__aimock/chaos", data, {"Content-Type": "application/json"})):
        pass


async def perform(server: str, mode: ApiMode, tmp_path: Path, runs: int) -> list[tuple[treadle.Result, list[Any]]]:
    """So many runs, side by side, each with what its calls brought."""

    async def one(engine: HostedEngine) -> tuple[treadle.Result, list[Any]]:
        retry = {"attempts": 40, "base_ms": 1}
        hero = treadle.Agent(name="hero", model="peer/m", tools=[look], retry=retry, persona="Be brief.")
        result = await engine.run(hero, "What is in the hall?")
        events = [event.data async for event in engine.events(result.run_id)]
        return result, [data.content for data in events if isinstance(data, ToolCallEnd)]

    async def run() -> list[tuple[treadle.Result, list[Any]]]:
        engine = create_engine(f"sqlite:///{tmp_path}/t.db", home=Home(tmp_path / "home"))
        engine.add_provider("peer", base_url=f"{server}/v1", api_mode=mode, api_key="sk-peer-1234")
        async with engine:
            return await asyncio.gather(*(one(engine) for _ in range(runs)))

    return await run()


@pytest.mark.parametrize("mode", MODES)
async def test_a_run_with_parallel_calls_completes(server: str, mode: ApiMode, tmp_path: Path) -> None:
    set_chaos(server, dropRate=0, malformedRate=0, disconnectRate=0, rateLimitRate=0)
    [(result, brought)] = await perform(server, mode, tmp_path, runs=1)
    assert (result.outcome, result.text) == ("completed", ANSWER)
    assert brought == ["nothing in hall", "nothing in attic"]


@pytest.mark.parametrize("chaos", ["dropRate", "malformedRate", "disconnectRate"])
@pytest.mark.parametrize("mode", MODES)
async def test_runs_complete_despite_injected_faults(
    server: str, mode: ApiMode, chaos: str, tmp_path: Path
) -> None:
    set_chaos(server, **{chaos: 0.4})
    try:
        done = await perform(server, mode, tmp_path, RUNS)
    finally:
        set_chaos(server, **{chaos: 0})
    for result, brought in done:
        assert (result.outcome, result.text) == ("completed", ANSWER), result.reason
        assert brought == ["nothing in hall", "nothing in attic"]
    assert sum(result.metrics.model_calls for result, _ in done) > 2 * RUNS, "chaos was there"
