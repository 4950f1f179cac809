"""Faults of MCP servers: the run continues with a clear message, nothing hangs, and no process is left."""

from pathlib import Path

import pytest

from tests.mcp.homes import make_agent, make_home, make_server, needs_sandbox, open_engine
from tests.mcp.test_calls import completed, find, list_server_processes, results, run_script
from tests.patience import until
from treadle.domain.events import McpDisconnected, McpFailed, ToolCallError
from treadle.domain.mcp_servers import McpServerSettings
from treadle.testing.models import ask, call, say

pytestmark = needs_sandbox


async def test_faults_of_a_server_are_results_and_no_process_is_left(tmp_path: Path) -> None:
    """kill -9 in mid-call, 50 MB, a flood, silence: the run continues, and each result names the server."""

    mark = f"--mark={tmp_path.name}"
    quick = make_server("plain.py")
    server = McpServerSettings(
        command="/bin/sh",
        args=("-c", f"exec {quick.command} {quick.args[0]}", mark),
        readable=quick.readable,
    )
    home = make_home(tmp_path / "home", s=server)
    names = ("die", "huge", "flood", "spawn")
    workspace = tmp_path / "w"
    await_steps = [ask(call(f"s__{name}")) for name in names]
    events = await run_script(home, make_agent(workspace), *await_steps)
    died, huge, flood, spawned = [result.content for result in results(events)]
    assert "the MCP server `s` was lost during the call: it ended with exit code 137" in died
    assert "whether it took effect is not known" in died
    assert "it sent a message of more than 16 MB" in huge or "is not available" in huge
    assert "it floods its standard output" in flood or "is not available" in flood
    assert completed(events)
    assert find(events, McpDisconnected)[0].server == "s"
    assert spawned
    await until(lambda: list_server_processes(mark) == [])


@pytest.mark.parametrize("name", ["huge", "flood", "hang"])
async def test_a_broken_call_says_what_broke(tmp_path: Path, name: str) -> None:
    env, seconds = {"CANCELLED": "{{workspace}}/cancelled"}, 0.5 if name == "hang" else 120.0
    server = make_server(timeout=seconds, workspace="write", env=env)
    home = make_home(tmp_path / "home", s=server)
    events = await run_script(home, make_agent(tmp_path / "w"), ask(call(f"s__{name}")))
    expected = {
        "huge": "the MCP server `s` was lost during the call: it sent a message of more than 16 MB",
        "flood": "the MCP server `s` was lost during the call: it floods its standard output",
        "hang": "the MCP server `s` did not answer within 0.5 s, and the call was cancelled",
    }
    assert expected[name] in results(events)[0].content
    if name == "hang":
        [failed] = find(events, ToolCallError)
        assert (failed.kind, failed.cause) == ("timeout", "tool_error")
        await until((tmp_path / "w" / "cancelled").exists)
    assert completed(events)


async def test_a_server_that_cannot_start_fails_fast_by_name(tmp_path: Path) -> None:
    dying = McpServerSettings(command="/bin/sh", args=("-c", "echo no database >&2; exit 3"))
    missing = McpServerSettings(command="no-such-program-anywhere")
    silent = McpServerSettings(command="/bin/sh", args=("-c", "sleep 600"), start_timeout=1.0)
    home = make_home(tmp_path / "home", dying=dying, missing=missing, silent=silent)
    names = ("dying", "missing", "silent", "dying", "dying")
    steps = [ask(call(f"{name}__echo", text=f"{number}")) for number, name in enumerate(names)]
    events = await run_script(home, make_agent(tmp_path / "w"), *steps)
    texts = [result.content for result in results(events)]
    assert "the MCP server `dying` is not available: it ended with exit code 3 (no database)" in texts[0]
    assert "The program `no-such-program-anywhere` was not found" in texts[1]
    assert "the MCP server `silent` is not available: it did not answer within 1 s" in texts[2]
    assert "The next attempt is possible in" in texts[4]
    assert len(find(events, McpFailed)) == 5
    assert completed(events)


async def test_a_server_that_exits_on_each_call_fails_fast_by_name(tmp_path: Path) -> None:
    """It is started again with backoff: the calls fail at once, and none of them waits for it."""

    home = make_home(tmp_path / "home", s=make_server())
    steps = [ask(call("s__die", f"c{number}", attempt=number)) for number in range(5)]
    events = await run_script(home, make_agent(tmp_path / "w"), *steps)
    texts = [result.content for result in results(events)]
    assert len(texts) == 5
    assert all("the MCP server `s`" in text for text in texts)
    assert "was lost during the call: it ended with exit code 137" in texts[0]
    assert "is not available: it ended with exit code 137" in texts[-1]
    assert "The next attempt is possible in" in texts[-1]
    assert completed(events)


async def test_a_server_that_answers_and_exits_is_started_again(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", s=make_server())
    steps = [ask(call("s__leave", f"c{number}", attempt=number)) for number in range(3)]
    events = await run_script(home, make_agent(tmp_path / "w"), *steps)
    first, *others = [result.content for result in results(events)]
    assert first == "bye"
    # A call that is sent before its end is noticed is lost, and says so. All others are answered.
    assert all(text == "bye" or "was lost during the call: it ended" in text for text in others)
    assert completed(events)


async def test_a_call_that_timed_out_is_replayed_without_its_server(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", s=make_server(timeout=0.5))
    async with open_engine(home, ask(call("s__hang")), say("Done.")) as engine:
        result = await engine.run(make_agent(tmp_path / "w"), "Go.")
        replayed = await engine.service.replay(result.run_id)
        assert replayed.is_same, replayed
