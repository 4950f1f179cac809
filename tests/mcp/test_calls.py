"""Calls of the tools of MCP servers, through the real engine, the real sandbox and real server programs."""

import asyncio
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.engine.running import until as until_event
from tests.mcp.homes import (
    PYTHON,
    SERVERS,
    approve,
    make_agent,
    make_home,
    make_server,
    needs_sandbox,
    open_engine,
    read_tools,
    write_home,
)
from tests.patience import HANG_SECONDS
from treadle.domain.agents import AgentSpec
from treadle.domain.envelope import Event
from treadle.domain.events import (
    ClarifyRequested,
    McpConnected,
    RunEnd,
    RunStart,
    ToolCallEnd,
    ToolCallError,
    ToolCallProgress,
)
from treadle.domain.mcp_servers import McpServerSettings
from treadle.domain.permissions import ApprovalRule, ApprovalRules
from treadle.testing.models import ScriptStep, ask, call, say

pytestmark = needs_sandbox


async def run_script(home: Path, agent: AgentSpec, *steps: ScriptStep) -> list[Event]:
    """Run an agent on scripted replies and return all events."""
    async with asyncio.timeout(HANG_SECONDS), open_engine(home, *steps, say("Done.")) as engine:
        return [event async for event in engine.stream(agent, "Go.")]


def results(events: Sequence[Event]) -> list[ToolCallEnd | ToolCallError]:
    return [event.data for event in events if isinstance(event.data, ToolCallEnd | ToolCallError)]


def find(events: Sequence[Event], kind: type[Any]) -> list[Any]:
    return [event.data for event in events if isinstance(event.data, kind)]


def completed(events: Sequence[Event]) -> bool:
    return find(events, RunEnd)[0].outcome == "completed"


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{pid}/stat") as stat:
        return stat.read().rpartition(")")[2].split()[0] != "Z"


def list_server_processes(mark: str) -> list[int]:
    """Return the processes on this machine whose command line has this text."""
    found: list[int] = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                with open(f"/proc/{name}/cmdline", "rb") as line:
                    if mark.encode() in line.read():
                        found.append(int(name))
            except OSError:
                continue
    return found


async def test_results_carry_text_structure_images_progress_and_errors(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", s=make_server())
    steps = [call(f"s__{name}") for name in ("rich", "pid", "steps", "fail", "refuse")]
    calls = [ask(call("s__echo", text="Grüße")), *(ask(each) for each in steps)]
    events = await run_script(home, make_agent(tmp_path / "w"), *calls)
    echo, rich, pid, progress, failed, refused = results(events)
    assert echo.content == "Grüße"
    assert isinstance(rich, ToolCallEnd)
    assert rich.content.splitlines() == [
        "hello",
        "[image 1, image/png]",
        "[resource file:///x: x]",
        "[resource memo:1]",
        "a note",
        "[audio, audio/wav, 3 bytes]",
        '{"answer": 42}',
    ]
    assert [image.media_type for image in rich.images] == ["image/png"]
    assert json.loads(pid.content.splitlines()[-1])["pid"] > 0
    assert progress.content == "done"
    shown = "".join(event.text for event in find(events, ToolCallProgress))
    assert shown == "1/3 step 1\n2/3 step 2\n3/3 step 3\n"
    assert isinstance(failed, ToolCallError)
    assert "it did not work" in failed.content
    assert isinstance(refused, ToolCallError)
    assert "the MCP server `s` answered with an error: no such method" in refused.content
    [connected] = find(events, McpConnected)
    assert (connected.server, connected.title, connected.protocol) == ("s", "plain 1.0", "2025-11-25")
    assert completed(events)


async def test_the_environment_is_stripped_and_secrets_come_from_the_vault(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-leaked")

    from treadle.vault.store import VaultStore

    env = {"API": "Bearer {{vault:API_TOKEN}}", "PLAIN": "1"}
    words = ("-c", f'ARGUMENT="$1" exec {PYTHON} {SERVERS}/plain.py', "sh", "{{vault:API_TOKEN}}")
    server = McpServerSettings(command="/bin/sh", args=words, readable=(str(SERVERS),), env=env)
    home = make_home(tmp_path / "home", s=server)
    store = VaultStore(home, os.environ)
    store.put("API_TOKEN", "s3cr3t-canary-value")
    store.close()
    events = await run_script(home, make_agent(tmp_path / "w"), ask(call("s__environment")))
    [result] = results(events)
    found = json.loads(result.content)
    assert found["PLAIN"] == "1"
    assert found["API"] == "Bearer [redacted:API_TOKEN]"  # the server has it, and the model does not see it
    assert found["ARGUMENT"] == "[redacted:API_TOKEN]"
    assert "s3cr3t-canary-value" not in "".join(str(event.data) for event in events)
    assert "OPENAI_API_KEY" not in found
    assert not any(name.startswith("TREADLE") for name in found)


async def test_a_server_does_not_get_secrets_by_asking_for_them(tmp_path: Path) -> None:
    """A poisoned description may tell the model to pass on a secret, or a server may ask the user for one."""

    from treadle.vault.store import SecretGrant, VaultStore

    home = make_home(tmp_path / "home", s=make_server())
    store = VaultStore(home, os.environ)
    store.put("API_TOKEN", "s3cr3t-canary-value")
    reference = "{{vault:API_TOKEN}}"
    steps = (ask(call("s__echo", text=reference)), ask(call("s__ask")), say("Done."))
    async with open_engine(home, *steps) as engine:
        run_id = await engine.submit(make_agent(tmp_path / "w"), "Go.", asker="channel")
        refused = (await until_event(engine, run_id, "tool_call_error")).data
        assert isinstance(refused, ToolCallError)
        assert refused.cause == "secret_refused"
        asked = (await until_event(engine, run_id, "clarify_requested")).data
        assert isinstance(asked, ClarifyRequested)
        await engine.answer(run_id, asked.call_id, f"{reference} s3cr3t-canary-value")
        ended = (await until_event(engine, run_id, "tool_call_end")).data
        assert isinstance(ended, ToolCallEnd)
        assert "s3cr3t" not in ended.content  # the answer was redacted before the server got it
        assert reference in ended.content  # and the reference was not resolved
        await engine.wait(run_id)
    store.grant("API_TOKEN", [SecretGrant("hero", "s__echo")])
    store.close()
    events = await run_script(home, make_agent(tmp_path / "w"), ask(call("s__echo", text=reference)))
    assert isinstance(results(events)[0], ToolCallEnd)  # granted for this tool by the operator
    assert "s3cr3t" not in results(events)[0].content


async def test_a_missing_secret_is_named(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", s=make_server(env={"API": "{{vault:NOT_THERE}}"}))
    events = await run_script(home, make_agent(tmp_path / "w"), ask(call("s__environment")))
    assert "the vault has no secret NOT_THERE" in results(events)[0].content


async def test_changed_tools_are_refused_until_they_are_approved_again(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", s=make_server())
    steps = (ask(call("s__change")), ask(call("s__echo", text="x")), ask(call("s__pid")))
    events = await run_script(home, make_agent(tmp_path / "w"), *steps)
    changed, refused, other = results(events)
    assert changed.content == "changed"
    assert "has changed this tool since it was approved" in refused.content
    assert "treadle mcp approve s" in refused.content
    assert isinstance(other, ToolCallEnd)


async def test_a_newly_approved_list_takes_effect_at_the_next_session(tmp_path: Path) -> None:
    """A session keeps the tools that it began with. What was withdrawn is gone at once; another server is new."""

    server, other = make_server(), make_server("plain.py", env={"OTHER": "1"})
    home = write_home(tmp_path / "home", s=server, t=other)
    tools = read_tools()
    echo, environment, pid = tools[:3]
    approve(home, "s", server, [echo, environment])
    agent = make_agent(tmp_path / "w")
    changed = {**echo, "description": "Return the text twice."}

    async with open_engine(home, *(say("Done.") for _ in range(4))) as engine:

        async def offer(session: str | None) -> tuple[str, dict[str, str]]:
            events = [event async for event in engine.stream(agent, "Go.", session=session)]
            [started] = find(events, RunStart)
            return events[0].session_id, {spec.name: spec.description for spec in started.tools}

        session, first = await offer(None)
        assert first == {"s__echo": "Return the text.", "s__environment": "Return the environment."}
        approve(home, "s", server, [changed, pid])
        approve(home, "t", other, [pid])
        _, second = await offer(session)
        assert second == {"s__echo": "Return the text.", "t__pid": "Return the process id."}
        _, next_session = await offer(None)
        assert next_session == {
            "s__echo": "Return the text twice.",
            "s__pid": "Return the process id.",
            "t__pid": "Return the process id.",
        }


async def test_an_elicitation_becomes_a_question(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", s=make_server(timeout=60.0))
    async with open_engine(home, ask(call("s__ask")), say("Done.")) as engine:
        run_id = await engine.submit(make_agent(tmp_path / "w"), "Go.", asker="channel")
        asked = (await until_event(engine, run_id, "clarify_requested")).data
        assert isinstance(asked, ClarifyRequested)
        assert asked.question == "The MCP server `s` asks: Which colour? (colour: string)"
        assert asked.during == "call_s__ask"
        await engine.answer(run_id, asked.call_id, "red")
        ended = (await until_event(engine, run_id, "tool_call_end")).data
        assert isinstance(ended, ToolCallEnd)
        assert json.loads(ended.content) == {"action": "accept", "content": {"colour": "red"}}
        assert (await engine.wait(run_id)).outcome == "completed"
        replayed = await engine.service.replay(run_id)  # without the server
        assert replayed.is_same, replayed


async def test_an_elicitation_is_declined_if_no_user_can_answer(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", s=make_server())
    events = await run_script(home, make_agent(tmp_path / "w"), ask(call("s__ask")))
    assert json.loads(results(events)[0].content)["action"] == "decline"


async def test_connections_are_kept_per_workspace(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", s=make_server())
    pids: list[str] = []
    script = [step for _ in range(4) for step in (ask(call("s__pid")), say("Done."))]
    async with open_engine(home, *script, metrics=True) as engine:
        for folder in ("w", "w", "v", "w"):
            agent = make_agent(tmp_path / folder)
            events = [event async for event in engine.stream(agent, "Go.")]
            pids.append(results(events)[0].content + str(len(find(events, McpConnected))))
        # Inside their own pid namespaces the ids may be equal: what tells them apart is who connected.
        assert [each[-1] for each in pids] == ["1", "0", "1", "0"]
        assert engine.metrics is not None
        page = engine.metrics.render().decode()
        assert 'treadle_mcp_connections{server="s",state="connected"} 2' in page
        assert 'treadle_mcp_connections_total{server="s",event="connected"} 2' in page


async def test_a_socket_behind_a_link_in_the_workspace_cannot_be_reached(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", s=make_server())
    outside, workspace = tmp_path / "outside", tmp_path / "w"
    outside.mkdir()
    workspace.mkdir()
    listener = await asyncio.start_unix_server(lambda reader, writer: writer.close(), str(outside / "sock"))
    (workspace / "link").symlink_to(outside / "sock")
    async with listener:
        paths = (str(workspace / "link"), str(outside / "sock"))
        calls = [ask(call("s__connect", path=path)) for path in paths]
        events = await run_script(home, make_agent(workspace), *calls)
    assert all(result.content.startswith("no: ") for result in results(events))


async def test_rules_and_globs_apply_to_the_tools_of_servers(tmp_path: Path) -> None:
    home = make_home(tmp_path / "home", s=make_server())
    rules = ApprovalRules(rules=(ApprovalRule("s__e*", "deny", "*secret*"),))
    agent = make_agent(tmp_path / "w", "s__e*", approvals=rules)
    steps = (
        ask(call("s__echo", text="the secret plan")),
        ask(call("s__echo", text="hello")),
        ask(call("s__echo", words="x")),
    )
    events = await run_script(home, agent, *steps)
    assert {spec.name for spec in find(events, RunStart)[0].tools} == {"s__echo", "s__environment"}
    denied, allowed, invalid = results(events)
    assert isinstance(denied, ToolCallError)
    assert denied.kind == "denied"
    assert allowed.content == "hello"
    assert isinstance(invalid, ToolCallError)
    assert invalid.kind == "invalid_arguments"


async def test_a_server_that_is_not_approved_is_not_offered(tmp_path: Path) -> None:
    home = write_home(tmp_path / "home", s=make_server())
    events = await run_script(home, make_agent(tmp_path / "w"))
    assert find(events, RunStart)[0].tools == ()
    approve(home, "s", make_server(network=True))  # another entry than the configured one
    events = await run_script(home, make_agent(tmp_path / "w"))
    assert find(events, RunStart)[0].tools == ()
    approve(home, "s", make_server())
    events = await run_script(home, make_agent(tmp_path / "w"))
    assert len(find(events, RunStart)[0].tools) == len(read_tools())


async def test_a_server_that_is_added_while_the_engine_runs_is_offered_to_the_next_run(tmp_path: Path) -> None:
    home = write_home(tmp_path / "home")
    async with open_engine(home, say("One."), say("Two."), say("Three.")) as engine:

        async def count_tools(session: str) -> int:
            result = await engine.run(make_agent(tmp_path / "w"), "Go.", session=session)
            return len(
                find([event async for event in engine.service.read_stored(result.run_id)], RunStart)[0].tools
            )

        assert await count_tools("one") == 0
        write_home(home, s=make_server())
        os.utime(home / "config.yaml", (1, 1))  # a file that has only just changed may be half written
        approve(home, "s", make_server())
        assert await count_tools("two") == len(read_tools())
        write_home(home, s=make_server(network=True))
        os.utime(home / "config.yaml", (2, 2))
        assert await count_tools("three") == 0, "a changed entry needs approval again"


async def test_a_server_of_an_agent_belongs_to_that_agent(tmp_path: Path) -> None:
    from treadle.mcp.pins import Pin, PinFolder, hash_entry

    home, server = write_home(tmp_path / "home"), make_server()
    PinFolder(home).write(Pin("own", hash_entry(server), tuple(read_tools()), "hero"))
    events = await run_script(
        home, make_agent(tmp_path / "w", mcp_servers={"own": server}), ask(call("own__echo", text="hi"))
    )
    assert results(events)[0].content == "hi"
    other = AgentSpec("other", "scripted/x", tools=("*__*",), workspace=str(tmp_path / "w"))
    assert find(await run_script(home, other), RunStart)[0].tools == ()
