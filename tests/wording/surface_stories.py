"""What clients see of an engine, as facts: statuses, problem types, kinds of events, exit codes and keys, but no
sentence. Every story gives the same facts however the messages are worded."""

import asyncio
import contextlib
import io
import json
import os
import socket
from collections.abc import AsyncGenerator, Callable, Coroutine
from pathlib import Path
from typing import Any

from acp import PROTOCOL_VERSION
from acp.agent.connection import AgentSideConnection
from acp.client.connection import ClientSideConnection
from acp.schema import ClientCapabilities

import treadle
from tests.channels.home import AGENT, chatting
from tests.e2e.editor import Editor, choose
from tests.e2e.scripted_endpoint import calls, says, serve
from tests.fake_endpoint import Silence
from tests.mcp.homes import make_agent, make_home, make_server, open_engine
from tests.mcp.test_server import connect
from tests.patience import HANG_SECONDS
from tests.surfaces.http.served_home import Reply, ServedHome, serve_home, wants_a_file
from tests.surfaces.http.sse import Wire
from treadle.api.engine import HostedEngine, create_engine
from treadle.config.home import Home
from treadle.domain.channels import Grant
from treadle.operations.channels import NewPairing
from treadle.surfaces.acp.agent import EditorAgent
from treadle.surfaces.acp.stdio import StdioTransport, Writer, open_reader
from treadle.surfaces.cli.app import run as run_command_line
from treadle.surfaces.home_access.home_link import HomeLink
from treadle.testing.models import ScriptedModel, ask, call, say

Fact = tuple[str, Any]
LIVE = ("token", "tool_call_delta")
"""Events that a client may miss if it comes late."""
ANNA = 11
SETTINGS = "retry: {attempts: 0}\nmemory: {recall: 0, remember: false}\n"


# ── HTTP ──


async def serve_clients(folder: Path) -> list[Fact]:
    """Submit, stream, approve, deny and cancel over HTTP, and make every kind of mistake."""
    found: list[Fact] = []

    def note(what: str, reply: Reply) -> Reply:
        is_problem = reply.headers.get("content-type") == "application/problem+json"
        found.append((what, (reply.status, reply.problem if is_problem else _keys(reply))))
        return reply

    async with serve_home(folder, policy=_answer_http) as server:
        run_id = note("submit", await server.ask("POST", "/v1/agents/one/runs", {"message": "Go."})).json["run_id"]
        found.append(("streamed", await _stream(server, run_id)))
        found.append(("completed", _outcome(await server.until(run_id, "completed"))))
        for decision in ("approve", "deny"):
            asked = await server.begin("asking")
            waiting = await server.until(asked, "waiting")
            found.append(("waiting", (waiting["waiting_for"], waiting["outcome"])))
            [approval] = note("approvals", await server.ask("GET", "/v1/approvals")).json["items"]
            path = f"/v1/approvals/{approval['approval_id']}"
            note(decision, await server.ask("POST", path, {"decision": decision}))
            found.append((decision, _outcome(await server.until(asked, "completed"))))
            found.append(("journal", await _read_journal(server, asked)))
            note("decided twice", await server.ask("POST", path, {"decision": decision}))
        silent = await server.begin("two", message="Wait.")
        await server.endpoint.asked.wait()
        note("cancel", await server.ask("POST", f"/v1/runs/{silent}/cancel"))
        found.append(("cancelled", _outcome(await server.until(silent, "cancelled"))))
        await _make_mistakes(server, run_id, note)
    return found


def _answer_http(request: Any) -> Any:
    messages = request.json["messages"]
    if "Wait." in json.dumps(messages):
        return Silence()
    offered = [tool["function"]["name"] for tool in request.json.get("tools", ())]
    return wants_a_file() if "write_file" in offered and messages[-1]["role"] == "user" else says("Done.")


async def _make_mistakes(server: ServedHome, run_id: str, note: Callable[[str, Reply], Reply]) -> None:
    runs, weak = "/v1/agents/one/runs", await server.mint("read")
    note("no token", await server.ask("GET", "/v1/runs", token=""))
    note("too weak a token", await server.ask("POST", runs, {"message": "Go."}, token=weak))
    note("unknown route", await server.ask("GET", "/v1/nothing"))
    note("unknown run", await server.ask("GET", "/v1/runs/run_0"))
    note("unknown agent", await server.ask("POST", "/v1/agents/none/runs", {"message": "Go."}))
    note("unknown session", await server.ask("POST", runs, {"message": "Go.", "session_id": "ses_0"}))
    note("unknown method", await server.ask("PUT", runs, {"message": "Go."}))
    note("ended run", await server.ask("POST", f"/v1/runs/{run_id}/interrupt"))
    note("wrong type", await server.ask("POST", runs, {"message": 1}))
    note("unknown field", await server.ask("POST", runs, {"message": "Go.", "colour": "red"}))
    note("no JSON", await server.ask("POST", runs, b"{"))
    note("wrong parameter", await server.ask("GET", "/v1/runs?limit=many"))
    note("too long", await server.ask("POST", runs, {"message": "x" * 5_000_000}))
    note("first use of a key", await server.ask("POST", runs, {"message": "a"}, Idempotency_Key="k"))
    note("key used again", await server.ask("POST", runs, {"message": "b"}, Idempotency_Key="k"))
    chat = "/v1/chat/completions"
    message = {"role": "user", "content": "Go."}
    note("completion", await server.ask("POST", chat, {"model": "one", "messages": [message]}))
    bodies: list[dict[str, Any]] = [
        {"model": "none", "messages": [message]},
        {"model": "one", "messages": []},
        {"model": "one"},
    ]
    for body in bodies:
        reply = await server.ask("POST", chat, body)
        error = reply.json["error"]
        note("refused completion", Reply(reply.status, {}, json.dumps([error["type"], error["code"]]).encode()))


async def _stream(server: ServedHome, run_id: str) -> list[str]:
    wire = await Wire.open(server.port, f"/v1/runs/{run_id}/events", server.token)
    try:
        return [event.type async for event in wire.events() if event.type not in LIVE]
    finally:
        await wire.close()


async def _read_journal(server: ServedHome, run_id: str) -> list[Any]:
    events = (await server.ask("GET", f"/v1/runs/{run_id}/journal")).json["items"]
    return [
        (event["type"], *(event["data"].get(name) for name in ("kind", "cause", "decision"))) for event in events
    ]


def _outcome(run: dict[str, Any]) -> list[Any]:
    return [run["status"], run["outcome"], run["result"] and run["result"]["text"]]


def _keys(reply: Reply) -> list[str]:
    body: dict[str, Any] | list[str] = reply.json if reply.body else []
    return sorted(body)


# ── The command line ──


def type_commands(folder: Path) -> list[Fact]:
    """Run commands in this process: runs, lists, approvals and mistakes."""
    home = folder / "home"
    os.environ |= {"TREADLE_HOME": str(home), "HOME": str(folder)}
    os.chdir(folder)  # the workspace of the agents
    found: list[Fact] = []

    def note(*words: str) -> list[dict[str, Any]]:
        code, out = _run(words)
        lines: list[dict[str, Any]] = [json.loads(line) for line in out.splitlines()] if "--json" in words else []
        shown = [_summarize(line) for line in lines if line.get("type") not in LIVE]
        found.append((words[0], (words[1:2], code, shown, bool(out))))
        return lines

    with serve(policy=_answer_commands) as endpoint:
        _write_home(home, endpoint.url)
        note("run", "--json", "Go.")
        note("run", "Go.")
        note("run", "--json", "--agent", "asking", "Write it.")
        [approval] = note("approvals", "list", "--json")
        note("approvals", "approve", approval["approval_id"], "--json")
        note("approvals", "approve", approval["approval_id"])
        for words in (
            ("runs", "list"),
            ("sessions", "list"),
            ("agents", "list"),
            ("usage",),
            ("doctor", "--offline"),
        ):
            note(*words, "--json")
        note("runs", "show", "run_0")
        note("runs", "nonsense")
        note("run", "--agent", "none", "Go.")
        note("run", "--nonsense")
        note("vault", "list", "--json")
        note("skills", "list", "--json")
    return found


def _answer_commands(request: Any) -> Any:
    messages = request.json["messages"]
    offered = [tool["function"]["name"] for tool in request.json.get("tools", ())]
    is_asked = "write_file" in offered and messages[-1]["role"] == "user"
    return calls("write_file", path="x.txt", content="x") if is_asked else says("Done.")


def _write_home(home: Path, url: str) -> None:
    for name, more in (("default", ""), ("asking", "tools: [write_file]\napprovals: {default: ask, via: api}\n")):
        (home / "agents" / name).mkdir(parents=True)
        text = f"name: {name}\nmodel: fake/m\n{SETTINGS}{more}"
        (home / "agents" / name / "config.yaml").write_text(text)
    (home / "config.yaml").write_text(
        f"{{providers: {{fake: {{base_url: '{url}', api_key: x}}}}, defaults: {{model: fake/m}}}}"
    )


def _run(words: tuple[str, ...]) -> tuple[int, str]:
    """Run a command, and return its exit code and its output."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    code: object = 0
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            run_command_line(words)
        except SystemExit as exit:
            code = exit.code
    out.flush()
    return code if isinstance(code, int) else 0, out.buffer.getvalue().decode()  # pyright: ignore[reportAttributeAccessIssue]


def _summarize(line: dict[str, Any]) -> list[Any]:
    """Return the facts of a line of JSON: its type or state, and its keys."""
    kinds = [line.get(name) for name in ("type", "status", "state", "outcome", "basis", "armed")]
    return [*kinds, sorted(line)]


# ── Channels, editors, MCP ──


async def talk_on_a_channel(folder: Path) -> list[Fact]:
    """Pair a person with a code; let the person approve one call and deny another."""
    done: list[str] = []

    @treadle.tool(effect="external")
    async def act(what: str) -> str:
        """Act."""
        done.append(what)
        return "done"

    model = ScriptedModel(ask(call("act", what="one")), say("first"), ask(call("act", what="two")), say("second"))
    agent = f"{AGENT}tools: [act]\napprovals: {{default: ask}}\n"
    found: list[Fact] = []
    grants: tuple[Grant, ...] = ("direct", "approve")
    pressed: list[int] = []

    def prepare(engine: HostedEngine) -> None:
        engine.add_tools(act)

    async with chatting(folder, model, agent=agent, prepare=prepare) as chat:
        manager = chat.engine.context.channels()
        await chat.fake.write(ANNA, "Hello?")
        await chat.fake.wait_for(lambda: chat.fake.texts(ANNA))
        code = (await manager.pair(NewPairing("telegram", grants))).code
        await chat.fake.write(ANNA, code)
        await chat.fake.wait_for(lambda: len(chat.fake.texts(ANNA)) > 1)
        for decision, answer in (("approve", "first"), ("deny", "second")):
            await chat.fake.write(ANNA, "Do it.")
            prompt = await chat.fake.wait_for(lambda: _find_prompt(chat.fake.sent, pressed))
            found.append(("buttons", _list_buttons(prompt)))
            pressed.append(prompt["message_id"])
            await chat.fake.press(ANNA, prompt, decision)
            await chat.says(ANNA, answer)
            found.append((decision, list(done)))
        [view] = await manager.list()
        found.append(("channel", (view.status, view.reason, view.failed, [each.grants for each in view.people])))
        runs = await chat.engine.context.service.runs()
        found.append(("runs", [each.outcome for each in runs]))
    return found


def _find_prompt(sent: list[dict[str, Any]], pressed: list[int]) -> dict[str, Any] | None:
    """Return a message with buttons that were not pressed yet."""
    return next((each for each in sent if each["markup"] and each["message_id"] not in pressed), None)


def _list_buttons(prompt: dict[str, Any]) -> list[str]:
    return [button["callback_data"] for row in prompt["markup"]["inline_keyboard"] for button in row]


@contextlib.asynccontextmanager
async def _open_editor(home: Home) -> AsyncGenerator[Editor]:
    """Yield an editor that is connected to an agent in this process."""
    (sends, receives), (answers, hears) = socket.socketpair(), socket.socketpair()
    writer = Writer(answers.detach())
    await writer.open()
    transport = StdioTransport(await open_reader(receives.detach()), writer)
    agent = EditorAgent(home, transport, lambda: HomeLink(home, lambda: create_engine(home=home)), "asking")
    agent_side: Any = AgentSideConnection(agent, transport, listening=False, use_unstable_protocol=True)  # pyright: ignore[reportArgumentType]
    listening = asyncio.create_task(agent_side.listen())
    _, sender = await asyncio.open_connection(sock=sends)
    reader, _ = await asyncio.open_connection(sock=hears, limit=2**24)
    editor = Editor()
    editor.conn = ClientSideConnection(editor, sender, reader, use_unstable_protocol=True)  # pyright: ignore[reportArgumentType]
    try:
        await editor.conn.initialize(protocol_version=PROTOCOL_VERSION, client_capabilities=ClientCapabilities())
        yield editor
    finally:
        sender.close()
        await listening
        await agent.leave()
        await agent_side.close()
        if agent.opening.link is not None:
            await agent.opening.link.close()
        await editor.conn.close()


async def edit_with_an_agent(folder: Path) -> list[Fact]:
    """Prompt an agent from an editor, which allows one call and rejects another."""
    found: list[Fact] = []
    home = Home(folder / "home")
    with serve(policy=_answer_commands) as endpoint:
        _write_home(home.path, endpoint.url)
        async with asyncio.timeout(HANG_SECONDS), _open_editor(home) as editor:
            session = await editor.new(folder)
            for option in ("allow-once", "deny"):
                editor.answer = choose(option)
                found.append((option, (await editor.send(session, "Write it.")).stop_reason))
            for asked, options in editor.permissions:
                found.append(("permission", (asked.kind, [(each.option_id, each.kind) for each in options])))
            found.append(("calls", [(each["kind"], each["status"]) for each in editor.calls().values()]))
            found.append(("text", editor.text))
            unknown = await editor.fails(editor.conn.prompt(session_id="ses_0", prompt=[]))
            found.append(("unknown session", unknown.code))
    return found


async def call_servers(folder: Path) -> list[Fact]:
    """Call the tools of an MCP server, and let an MCP client call agents."""
    found: list[Fact] = []
    home = make_home(folder / "client", s=make_server())
    steps = [ask(call(f"s__{name}")) for name in ("rich", "fail", "refuse", "missing")]
    async with open_engine(home, *steps, say("done")) as engine:
        result = await engine.run(make_agent(folder / "workspace", sandbox="off"), "go")
        events = [event.data async for event in engine.events(result.run_id)]
        facts = [
            (type(each).__name__, *(getattr(each, name, None) for name in ("kind", "cause"))) for each in events
        ]
        found.append(("client", [each for each in facts if each[0].startswith(("ToolCall", "Mcp", "RunEnd"))]))
    async with (
        serve_home(folder / "server", policy=_answer_http) as server,
        connect(server, server.token) as client,
    ):
        found.append(("tools", sorted(tool.name for tool in (await client.list_tools()).tools)))
        for name, arguments in (("one", {}), ("start_run", {"agent": "two"})):
            answer = await client.call_tool(name, {"message": "Go.", **arguments})
            found.append((name, (answer.is_error, sorted(answer.structured_content or {}))))
        found.append(("unknown run", (await client.call_tool("get_run", {"run_id": "run_0"})).is_error))
    return found


STORIES: tuple[Callable[[Path], list[Fact] | Coroutine[Any, Any, list[Fact]]], ...] = (
    serve_clients, type_commands, talk_on_a_channel, edit_with_an_agent, call_servers,
)  # fmt: skip


def tell(folder: Path) -> dict[str, list[Fact]]:
    """Return the facts of every story."""
    found: dict[str, list[Fact]] = {}
    for story in STORIES:
        place = folder / story.__name__
        place.mkdir(parents=True)
        told = story(place)
        found[story.__name__] = told if isinstance(told, list) else asyncio.run(_within(told))
    return found


async def _within(story: Coroutine[Any, Any, list[Fact]]) -> list[Fact]:
    async with asyncio.timeout(HANG_SECONDS):
        return await story
