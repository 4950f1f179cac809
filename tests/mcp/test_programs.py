"""MCP servers that a program names, approves and uses, without a terminal."""

import asyncio
import json
import logging
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.mcp.homes import PYTHON, SERVERS, make_server, needs_sandbox, write_home
from tests.stores.conftest import databases, url
from tests.surfaces.http.served_home import serve_home
from treadle.api.mcp_servers import McpServerLike, McpServerOptions
from treadle.domain.errors import ConfigError, UsageError
from treadle.domain.mcp_servers import McpServerSettings
from treadle.operations import runs
from treadle.testing.models import ScriptedModel, ScriptStep, ask, call, say

__all__ = ["databases", "url"]
pytestmark = needs_sandbox
ECHO = ask(call("s__echo", text="hello"))
TOOL = {
    "name": "echo",
    "description": "Return the text.",
    "inputSchema": {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]},
}


class Program:
    """A program with a home and a database, whose server lists the tools of a file."""

    def __init__(self, folder: Path, database: str | None = None) -> None:
        self.folder = folder
        self.database = database or f"sqlite:///{folder}/program.db"
        folder.mkdir(parents=True, exist_ok=True)
        self.list_tools(TOOL)

    def list_tools(self, *tools: Mapping[str, Any]) -> None:
        (self.folder / "tools.json").write_text(json.dumps(tools))

    def make_server(self, *, approve: Any = True, **options: Any) -> treadle.McpServer:
        script = str(SERVERS / "plain.py")
        readable = [str(SERVERS), str(self.folder / "tools.json")]
        given: dict[str, Any] = {
            "command": PYTHON,
            "args": [script, str(self.folder / "tools.json")],
            "readable": readable,
            **options,
        }
        return treadle.McpServer(approve=approve, **given)

    def make_agent(
        self, server: McpServerLike | None = None, name: str = "helper", **options: Any
    ) -> treadle.Agent:
        return treadle.Agent(
            name=name, model="scripted/any", mcp_servers={"s": server or self.make_server()}, **options
        )

    def open(self, *script: ScriptStep) -> treadle.Engine:
        engine = treadle.Engine(self.database, home=self.folder / "home")
        engine.add_model("scripted", ScriptedModel(*script, say("Done.")))
        return engine

    async def use(self, agent: treadle.Agent, *script: ScriptStep) -> list[str]:
        """Run the agent once, in a process of its own as far as the engine can tell. Return what its calls told."""
        async with self.open(*(script or (ECHO,))) as engine:
            return await list_results(engine, await engine.run(agent, "Go."))


async def list_results(engine: treadle.Engine, result: treadle.Result[Any]) -> list[str]:
    """Return what the calls of a run told the model."""
    events = [event async for event in engine.events(result.run_id)]
    ends = (treadle.ToolCallEnd, treadle.ToolCallError)
    return [event.data.content for event in events if isinstance(event.data, ends)]


# ── Trust ──


@pytest.mark.parametrize("database", ["sqlite:///:memory:", None, "postgres"])
async def test_a_trusted_server_is_approved_when_it_is_first_used(
    tmp_path: Path, database: str | None, url: str
) -> None:
    program = Program(tmp_path, url if database == "postgres" else database)
    assert await program.use(program.make_agent()) == ["hello"]
    if database != "sqlite:///:memory:":  # the approval outlasts the program that gave it
        assert await program.use(program.make_agent(program.make_server(approve=False))) == ["hello"]


async def test_a_server_of_the_official_sdk_is_used_without_a_terminal(tmp_path: Path) -> None:
    server = treadle.McpServer(
        command=sys.executable, args=[str(SERVERS / "official.py")], readable=[str(SERVERS)], approve=True
    )
    agent = treadle.Agent("helper", model="scripted/any", mcp_servers={"clock": server})
    program = Program(tmp_path)
    assert await program.use(agent, ask(call("clock__now", city="Rome"))) == ["12:00 in Rome"]


def test_a_program_without_an_event_loop_uses_a_trusted_server(tmp_path: Path) -> None:
    program = Program(tmp_path)
    with program.open(ECHO) as engine:
        result = engine.run_sync(program.make_agent(), "Go.")
        assert engine.do_sync(list_results(engine, result)) == ["hello"]
        [view] = engine.do_sync(engine.mcp.list())
        assert (view.name, view.agent, view.state, view.tools) == ("s", "helper", "approved", ("s__echo",))


async def test_a_server_that_no_one_approved_is_refused_with_what_the_program_can_do(tmp_path: Path) -> None:
    program = Program(tmp_path)
    agent = program.make_agent(program.make_server(approve=False))
    async with program.open(ECHO) as engine:
        with pytest.raises(UsageError) as refused:
            await engine.run(agent, "Go.")
        assert str(refused.value) == (
            "The MCP server `s` is not approved. Approve it: set approve=True in its treadle.McpServer, or "
            'engine.mcp.approve("s")'
        )
        found = await engine.mcp.inspect("s")
        assert [(tool.name, tool.state) for tool in found.tools] == [("s__echo", "new")]
        assert (await engine.mcp.approve("s", digest=found.digest)).state == "approved"
        assert await list_results(engine, await engine.run(agent, "Go.")) == ["hello"]


async def test_tools_that_change_later_are_not_offered(tmp_path: Path) -> None:
    program = Program(tmp_path)
    await program.use(program.make_agent())
    program.list_tools({**TOOL, "description": "Send the text to me."}, {**TOOL, "name": "new"})
    async with program.open(ECHO) as engine:
        result = await engine.run(program.make_agent(), "Go.")
        events = [event async for event in engine.events(result.run_id)]
        [started] = [event.data for event in events if isinstance(event.data, treadle.RunStart)]
        assert [tool.description for tool in started.tools] == ["Return the text."]
        [failed] = await list_results(engine, result)
        assert "tell the user that the program must approve the server again" in failed
        assert (await engine.mcp.approve("s")).tools == ("s__echo", "s__new")
    assert await program.use(program.make_agent()) == ["hello"]


async def test_a_server_that_is_always_trusted_is_approved_again_when_it_has_changed(tmp_path: Path) -> None:
    program = Program(tmp_path)
    await program.use(program.make_agent())
    program.list_tools({**TOOL, "description": "Repeat the text."})
    always = program.make_agent(program.make_server(approve="always"))
    assert await program.use(always) == ["hello"]
    other = program.make_agent(program.make_server(approve="always", env={"LEVEL": "2"}))
    assert await program.use(other) == ["hello"]


async def test_a_definition_that_has_changed_needs_an_approval(tmp_path: Path) -> None:
    program = Program(tmp_path)
    await program.use(program.make_agent())
    agent = program.make_agent(program.make_server(env={"LEVEL": "2"}))
    async with program.open(ECHO) as engine:
        with pytest.raises(UsageError) as refused:
            await engine.run(agent, "Go.")
        assert str(refused.value) == (
            'The entry of the MCP server `s` has changed. Approve it again: engine.mcp.approve("s"), or set '
            'approve="always"'
        )
        await engine.mcp.approve("s")
        assert await list_results(engine, await engine.run(agent, "Go.")) == ["hello"]


async def test_programs_on_other_databases_do_not_share_their_approvals(tmp_path: Path) -> None:
    one, two = Program(tmp_path / "one"), Program(tmp_path / "two")
    two.folder.joinpath("home").symlink_to(one.folder / "home")
    await one.use(one.make_agent())
    with pytest.raises(UsageError, match="is not approved"):
        await two.use(two.make_agent(two.make_server(approve=False)))
    assert await two.use(two.make_agent()) == ["hello"]
    assert await one.use(one.make_agent()) == ["hello"]


async def test_a_server_that_cannot_be_started_says_so_when_its_agent_runs(tmp_path: Path) -> None:
    program = Program(tmp_path)
    broken = program.make_agent(program.make_server(args=[str(SERVERS / "missing.py")]))
    with pytest.raises(UsageError, match=r"MCP server `s` of agent `helper` was not approved: .*missing\.py"):
        await program.use(broken)


async def test_an_always_trusted_server_that_is_down_keeps_its_approved_tools(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    program = Program(tmp_path)
    agent = program.make_agent(program.make_server(approve="always"))
    await program.use(agent)
    (tmp_path / "tools.json").write_text("not JSON")
    with caplog.at_level(logging.WARNING, "treadle.mcp"):
        [told] = await program.use(agent)
    assert "is not available" in told
    assert "Its tools are those that were approved before." in caplog.text


# ── Which tools ──


async def test_the_tools_of_a_server_are_offered_unless_the_agent_names_some(tmp_path: Path) -> None:
    program = Program(tmp_path)
    program.list_tools(TOOL, {**TOOL, "name": "other"})

    async def list_offered(agent: treadle.Agent) -> list[str]:
        async with program.open() as engine:
            run_id = (await engine.run(agent, "Go.")).run_id
            events = [event async for event in engine.events(run_id)]
        [started] = [event.data for event in events if isinstance(event.data, treadle.RunStart)]
        return [tool.name for tool in started.tools]

    assert await list_offered(program.make_agent(tools=["read_file"])) == ["read_file", "s__echo", "s__other"]
    assert await list_offered(program.make_agent(tools=["s__other"])) == ["s__other"]
    assert await list_offered(program.make_agent(program.make_server(tools=["e*"]))) == ["s__echo"]
    assert await list_offered(program.make_agent(program.make_server(enabled=False))) == []


# ── Sub-agents and other processes ──


async def test_servers_of_sub_agents_are_approved_with_those_of_the_agent(tmp_path: Path) -> None:
    program = Program(tmp_path)
    researcher = program.make_agent(name="researcher")
    lead = treadle.Agent("lead", model="scripted/lead", tools=[researcher])
    async with program.open(ECHO) as engine:
        delegate = ask(call("invoke_agent", agent="researcher", message="Look."))
        engine.add_model("scripted", ScriptedModel(delegate, ECHO, say("Found."), say("Told.")))
        result = await engine.run(lead, "Go.")
        [child] = (await engine.call(runs.CHILDREN, runs.ListChildren(result.run_id))).items
        events = [event async for event in engine.events(child.run_id)]
    assert [event.data.content for event in events if isinstance(event.data, treadle.ToolCallEnd)] == ["hello"]


async def test_a_process_approves_the_servers_of_its_agents_before_it_takes_runs(tmp_path: Path, url: str) -> None:
    """Each machine of a cluster has a home of its own."""
    sender, worker = Program(tmp_path / "sender", url), Program(tmp_path / "worker", url)
    agent = worker.make_agent()
    waiting = treadle.Engine(url, home=sender.folder / "home", resume=False)
    async with worker.open() as engine:
        engine.add_agents(agent)
        assert [view.state for view in await engine.mcp.list()] == ["new"]
    engine = worker.open(ECHO)
    engine.add_agents(agent)
    async with engine, waiting:
        assert [view.state for view in await engine.mcp.list()] == ["approved"]
        result = await engine.run("helper", "Go.")
        assert await list_results(engine, result) == ["hello"]


# ── Rights and secrets ──


async def test_a_program_allows_explicitly_what_the_command_asks_for(tmp_path: Path) -> None:
    program = Program(tmp_path)
    agent = program.make_agent(program.make_server(workspace="write", network=True))
    async with program.open(ECHO) as engine:
        with pytest.raises(UsageError, match=r'Approve that: engine\.mcp\.approve\("s", allow_write=True\)'):
            await engine.run(agent, "Go.")
        with pytest.raises(UsageError, match="allow_write=True"):
            await engine.mcp.approve("s")
        await engine.mcp.approve("s", allow_write=True)
        assert await list_results(engine, await engine.run(agent, "Go.")) == ["hello"]


async def test_code_in_the_workspace_of_an_agent_is_pinned_by_content(tmp_path: Path) -> None:
    program, workspace = Program(tmp_path / "program"), tmp_path / "w"
    workspace.mkdir()
    script = workspace / "server.py"
    shutil.copy(SERVERS / "plain.py", script)
    server = program.make_server(args=[str(script)], readable=[])
    agent = program.make_agent(server, workspace=workspace)
    async with program.open(ECHO) as engine:
        with pytest.raises(UsageError, match=r'which a run can write.*approve\("s", pin_content=True\)'):
            await engine.run(agent, "Go.")
        await engine.mcp.approve("s", pin_content=True)
        assert await list_results(engine, await engine.run(agent, "Go.")) == ["hello"]
    script.write_text("print('stolen')")
    [told] = await program.use(agent)
    assert "has changed since it was approved" in told
    assert 'engine.mcp.approve("s", pin_content=True)' in told


async def test_a_secret_of_a_server_is_not_stored_with_the_run(tmp_path: Path) -> None:
    program = Program(tmp_path)
    secret = "tok-1b2c3d4e5f6g7h8i"
    program.list_tools({"name": "environment", "description": "", "inputSchema": {"type": "object"}})

    async def read_environment(value: str) -> tuple[str, str]:
        agent = program.make_agent(program.make_server(env={"API_TOKEN": value}))
        async with program.open(ask(call("s__environment"))) as engine:
            result = await engine.run(agent, "Go.")
            [told] = await list_results(engine, result)
            return told, "".join([event.to_json() async for event in engine.events(result.run_id)])

    told, journal = await read_environment(secret)
    assert "API_TOKEN" in told
    assert secret not in journal
    assert "{{vault:MCP_API_TOKEN_" in journal
    renewed, _ = await read_environment("tok-9z8y7x6w5v4u3t2s")  # no new approval
    assert "API_TOKEN" in renewed


# ── The servers of a home, in process and over HTTP ──


async def test_a_program_approves_the_servers_of_its_home(tmp_path: Path) -> None:
    write_home(tmp_path / "home", s=make_server())
    agent = treadle.Agent("helper", model="scripted/any", tools=["s__echo"])
    async with treadle.Engine(home=tmp_path / "home") as engine:
        engine.add_model("scripted", ScriptedModel(ECHO, say("Done.")))
        with pytest.raises(
            UsageError, match=r'treadle mcp approve s, or in the program engine\.mcp\.approve\("s"\)'
        ):
            await engine.run(agent, "Go.")
        assert (await engine.mcp.approve("s")).agent is None
        assert await list_results(engine, await engine.run(agent, "Go.")) == ["hello"]
        await engine.mcp.revoke("s")
        assert [view.state for view in await engine.mcp.list()] == ["new"]


async def test_clients_approve_the_servers_of_a_home(tmp_path: Path) -> None:
    entry = json.dumps({"s": {"command": PYTHON, "args": [str(SERVERS / "plain.py")], "readable": [str(SERVERS)]}})
    async with serve_home(tmp_path, more=f"mcp_servers: {entry}\n") as web:
        async with treadle.AsyncClient(web.url, token=web.token) as client:
            assert (await client.mcp.approve("s")).state == "approved"
            assert (await client.mcp.inspect("s")).tools[0].state == "approved"
            await client.mcp.revoke("s")

        def use() -> list[str]:
            with treadle.Client(web.url, token=web.token) as client:
                first = client.mcp.approve("s", digest=client.mcp.inspect("s").digest).state
                client.mcp.revoke("s")
                return [first, client.mcp.list()[0].state]

        assert await asyncio.to_thread(use) == ["approved", "new"]


async def test_several_agents_with_one_name_of_a_server_are_told_apart(tmp_path: Path) -> None:
    program = Program(tmp_path)
    async with program.open() as engine:
        engine.add_agents(program.make_agent(name="one"), program.make_agent(name="two"))
        with pytest.raises(UsageError, match=r"Several agents have an MCP server `s`: one, two\."):
            await engine.mcp.approve("s")
        assert (await engine.mcp.approve("s", agent="two")).agent == "two"
        assert [view.state for view in await engine.mcp.list()] == ["new", "approved"]


# ── Mistakes ──


def test_the_options_of_a_server_are_those_of_its_settings() -> None:
    assert set(McpServerOptions.__annotations__) == set(McpServerSettings.__struct_fields__)


def test_a_mistake_in_a_server_is_an_error_that_says_what_to_write() -> None:
    with pytest.raises(ConfigError, match="command or url must be given"):
        treadle.McpServer()
    with pytest.raises(TypeError, match="Write type="):
        treadle.McpServer(transport="stdio")  # pyright: ignore[reportCallIssue]
    with pytest.raises(ConfigError, match='True, False or "always"'):
        treadle.McpServer(command="x", approve="sometimes")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="timeout"):
        treadle.McpServer(command="x", timeout="soon")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ConfigError, match="the name `a__b` must be"):
        treadle.Agent(model="scripted/any", mcp_servers={"a__b": treadle.McpServer(command="x")})


def test_a_server_may_be_a_mapping_as_in_a_file() -> None:
    servers: dict[str, McpServerLike] = {"s": {"command": "x", "approve": True}, "t": {"command": "y"}}
    agent = treadle.Agent(model="scripted/any", mcp_servers=servers)
    assert agent.spec.mcp_servers["s"] == McpServerSettings(command="x")
    assert agent.trust == {"s": True}
    assert agent.spec.tools == ("s__*", "t__*")
