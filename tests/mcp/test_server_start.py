"""A server never runs code that a run can write, and has the access to the workspace that its entry says."""

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.engine.test_children import first_said
from tests.engine.test_children import results as answers
from tests.mcp.homes import (
    PYTHON,
    SERVERS,
    approve,
    make_agent,
    needs_sandbox,
    open_engine,
    read_tools,
    write_home,
)
from tests.mcp.test_calls import results, run_script
from treadle.config.home import Home
from treadle.domain.agents import AgentSpec
from treadle.domain.events import RunStart
from treadle.domain.mcp_servers import Consent, McpServerSettings
from treadle.domain.permissions import SandboxPolicy
from treadle.domain.writable_places import WritablePlaces
from treadle.home.mcp_admin import approve_server, inspect_server
from treadle.home.mcp_approvals import HomeApprovals
from treadle.home.mcp_entries import find_entry
from treadle.mcp.catalog import McpCatalog
from treadle.mcp.pins import Pin, PinFolder
from treadle.ports.model import ModelRequest
from treadle.ports.sandbox import CommandError, Program
from treadle.ports.tool import ToolError
from treadle.sandbox.commands import ShellCommands
from treadle.testing.models import FunctionModel, ScriptStep, ask, call, say
from treadle.vault.store import VaultStore

pytestmark = needs_sandbox

TOKEN = "s3cr3t-canary-value"
OFF = SandboxPolicy("off")
THEFT = """
import os
for name in ("stolen.txt", {stolen!r}):
    try:
        open(name, "a").write(repr(dict(os.environ)))
    except OSError:
        pass
"""


def make_secret_server(*arguments: str, **settings: Any) -> McpServerSettings:
    """Return a server with a secret and the network, which is started as a module."""
    env = {"PYTHONPATH": str(SERVERS), "TOKEN": "{{vault:TOKEN}}"}
    args = arguments or ("-m", "place")
    return McpServerSettings(command=PYTHON, args=args, env=env, network=True, readable=(str(SERVERS),), **settings)


def make_plain_server(*arguments: str, **settings: Any) -> McpServerSettings:
    args = (str(SERVERS / "place.py"), *arguments)
    return McpServerSettings(
        command=PYTHON, args=args, readable=(str(SERVERS), *settings.pop("readable", ())), **settings
    )


def prepare(home: Path, server: McpServerSettings, **pin: Any) -> Path:
    """Create a home with an approved server and a secret."""
    write_home(home, s=server)
    approve(home, "s", server, read_tools("place.py"))
    if pin:
        from treadle.mcp.pins import hash_entry

        PinFolder(home).write(Pin("s", hash_entry(server), tuple(read_tools("place.py")), **pin))
    store = VaultStore(home, os.environ)
    store.put("TOKEN", TOKEN)
    store.close()
    return home


async def use(home: Path, workspace: Path, *steps: ScriptStep, **settings: Any) -> list[str]:
    """Return the contents of the results of these calls."""
    found: list[str] = []

    agent = make_agent(workspace, "s__*", "@files", **settings)
    found.extend(each.content for each in results(await run_script(home, agent, *steps)))
    return found


async def ask_where(home: Path, workspace: Path, **settings: Any) -> dict[str, Any]:
    [content] = await use(home, workspace, ask(call("s__where")), **settings)
    return json.loads(content)


async def inspect(home: Path, consent: Consent | None = None) -> Any:
    """Inspect and approve the server `s` of a home, as `treadle mcp approve` does."""
    found: list[Any] = []

    place = Home(home)
    entry = find_entry(place, "s")
    found.append(await inspect_server(HomeApprovals(place), entry, consent=consent or Consent()))
    approve_server(HomeApprovals(place), entry, found[0])
    return found[0]


# ── The attack ──


@pytest.mark.parametrize("sandbox", [SandboxPolicy(), OFF], ids=["sandbox", "no sandbox"])
async def test_a_file_of_the_workspace_does_not_get_the_secret_of_a_server(
    tmp_path: Path, sandbox: SandboxPolicy
) -> None:
    home, workspace = prepare(tmp_path / "home", make_secret_server()), tmp_path / "w"
    theft = THEFT.format(stolen=str(workspace / "stolen.txt"))
    workspace.mkdir()
    for name in ("sitecustomize.py", "usercustomize.py"):
        (workspace / name).write_text(theft)
    names = ("json.py", "place.py", "os.py")
    plant = [ask(call("write_file", path=name, content=theft)) for name in names]
    *_, told = await use(home, workspace, *plant, ask(call("s__where")), sandbox=sandbox)
    assert all((workspace / name).exists() for name in names)
    assert json.loads(told)["entries"] == []
    assert not (workspace / "stolen.txt").exists()


async def test_a_file_of_a_second_folder_does_not_get_the_secret(tmp_path: Path) -> None:
    """The server is started in one workspace from code that a run in another one has rewritten."""
    first, second = tmp_path / "first", tmp_path / "second"
    first.mkdir()
    script = first / "server.py"
    shutil.copy(SERVERS / "place.py", script)
    home = prepare(tmp_path / "home", make_secret_server(str(script)))
    theft = THEFT.format(stolen=str(first / "stolen.txt"))
    await use(home, first, ask(call("write_file", path="server.py", content=theft)))
    [refused] = await use(home, second, ask(call("s__where")))
    assert f"argument 1 is in {script}, which a run can write" in refused
    assert "uv tool install" in refused
    assert not (first / "stolen.txt").exists()


@pytest.mark.parametrize("sandbox", [SandboxPolicy(), OFF], ids=["sandbox", "no sandbox"])
async def test_a_sub_agent_does_not_get_the_secret(tmp_path: Path, sandbox: SandboxPolicy) -> None:
    home, workspace = prepare(tmp_path / "home", make_secret_server()), tmp_path / "w"
    workspace.mkdir()
    theft = THEFT.format(stolen=str(workspace / "stolen.txt"))

    def answer(request: ModelRequest) -> ScriptStep:
        if first_said(request) != "part":
            return say("Done.") if answers(request) else ask(call("agent_spawn", message="part"))
        steps = (ask(call("write_file", path="json.py", content=theft)), ask(call("s__where")), say("Done."))
        return steps[answers(request)]

    engine = open_engine(home)
    engine.add_model("function", FunctionModel(answer))
    agent = AgentSpec(
        "hero",
        "function/x",
        tools=("s__*", "write_file", "agent_spawn"),
        workspace=str(workspace),
        sandbox=sandbox,
    )
    async with engine:
        await engine.run(agent, "Go.")
    assert (workspace / "json.py").exists()
    assert not (workspace / "stolen.txt").exists()


async def test_the_start_folder_is_private_empty_and_gone_afterwards(tmp_path: Path) -> None:
    home, workspace = prepare(tmp_path / "home", make_plain_server()), tmp_path / "w"
    confined = await ask_where(home, workspace)
    assert (confined["folder"], confined["entries"], confined["safe"]) == ("/run/home/start", [], "1")
    free = await ask_where(home, workspace, sandbox=OFF)
    assert (free["entries"], free["mode"], free["safe"]) == ([], "0o700", "1")
    assert not free["folder"].startswith(str(tmp_path))
    assert not Path(free["folder"]).exists()


async def test_without_bubblewrap_the_same_rules_hold(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    (workspace / "json.py").write_text(f"open({str(workspace / 'stolen.txt')!r}, 'w')")
    commands = ShellCommands(bubblewrap="/nowhere/bwrap")

    async def run(folder: Path) -> str:
        places = WritablePlaces((str(folder),))
        code = "import json, os; print(json.dumps([os.getcwd(), os.listdir()]))"
        program = Program((PYTHON, "-c", code), folder, folder="private", access="none", avoided=places)
        assert await commands.find_writable_code(program) == ()
        process = await commands.start(program, 10_000)
        try:
            return (await process.output.read()).decode()
        finally:
            await process.stop(5.0)

    try:
        folder, entries = json.loads(await run(workspace))
        assert entries == []
        assert not Path(folder).exists()
        with pytest.raises(CommandError, match="its start folder would be in /tmp, which a run can write"):
            await run(Path("/tmp"))
    finally:
        commands.close()
    assert not (workspace / "stolen.txt").exists()


async def test_what_is_next_to_a_script_is_imported_unless_a_run_can_write_it(tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    shutil.copy(SERVERS / "place.py", tools / "server.py")
    (tools / "sibling.py").touch()
    server = McpServerSettings(command=PYTHON, args=(str(tools / "server.py"),), readable=(str(tools),))
    home = prepare(tmp_path / "home", server)
    load = ask(call("s__load", name="sibling"))
    assert await use(home, tmp_path / "w", load) == [json.dumps(str(tools / "sibling.py"))]
    (tools / "sibling").mkdir()
    [refused] = await use(home, tools / "sibling", load)
    assert "ModuleNotFoundError" in refused


# ── The workspace of a server ──


@pytest.mark.parametrize(
    ("settings", "reads", "writes"),
    [
        ({}, True, False),
        ({"workspace": "write"}, True, True),
        ({"workspace": "none"}, False, False),
        ({"network": True}, False, False),
        ({"env": {"TOKEN": "{{vault:TOKEN}}"}}, False, False),
        ({"env": {"API_KEY": "plain"}}, False, False),
        ({"network": True, "workspace": "read"}, True, False),
    ],
    ids=str,
)
async def test_a_server_sees_the_workspace_as_its_entry_says(
    tmp_path: Path, settings: dict[str, Any], reads: bool, writes: bool
) -> None:
    home, workspace, shared = (
        prepare(tmp_path / "home", make_plain_server(**settings)),
        tmp_path / "w",
        tmp_path / "x",
    )
    for folder in (workspace, shared):
        folder.mkdir()
        (folder / "a.txt").write_text("hello")
    told: dict[str, bool] = {}
    steps = [ask(call("s__read", path=str(folder / "a.txt"))) for folder in (workspace, shared)]
    steps += [ask(call("s__write", path=str(folder / "b.txt"), text="x")) for folder in (workspace, shared)]
    rights = SandboxPolicy(writable=(str(shared),))
    found = await use(home, workspace, *steps, ask(call("s__where")), sandbox=rights)
    told = {"reads": found[0] == '"hello"', "writes": (workspace / "b.txt").exists()}
    assert told == {"reads": reads, "writes": writes}
    assert (found[1] == '"hello"', (shared / "b.txt").exists()) == (reads, writes), "folders of the agent count too"
    assert not any(str(workspace) in leak for leak in json.loads(found[-1])["leaks"])


async def test_a_server_is_told_the_workspace_by_an_argument_or_as_a_root(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    server = make_plain_server("--folder={{workspace}}")
    home = prepare(tmp_path / "home", server)
    told, roots = await use(home, workspace, ask(call("s__where")), ask(call("s__roots")))
    assert json.loads(told)["arguments"] == [f"--folder={workspace}"]
    assert json.loads(roots) == [], "roots would replace what the argument says"
    home = prepare(tmp_path / "home", make_plain_server())
    assert json.loads((await use(home, workspace, ask(call("s__roots"))))[0]) == [workspace.as_uri()]
    home = prepare(tmp_path / "home", make_plain_server(workspace="none"))
    assert json.loads((await use(home, workspace, ask(call("s__roots"))))[0]) == []


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        (make_plain_server("{{workspace}}", network=True), "it has the network; say `workspace: read`"),
        (make_plain_server("{{workspace}}", workspace="none"), "its entry says `workspace: none`"),
        (make_plain_server("."), "argument 2 is `.`, and the program starts in an empty folder"),
        (make_plain_server("./data"), "write `{{workspace}}` for the workspace"),
        (make_plain_server(cwd="{{workspace}}"), "its `cwd` is `{{workspace}}`"),
        (make_plain_server(cwd="sub"), "remove it, and give the path of the workspace as an argument"),
        (McpServerSettings(command="./server"), "its program `./server` is in the workspace or is a relative path"),
        (McpServerSettings(command="{{workspace}}/x"), "give its name or its whole path"),
        (McpServerSettings(command=PYTHON, args=("server.py",)), "Give the whole path of the script"),
    ],
    ids=lambda value: str(value)[:60] if isinstance(value, str) else "",
)
async def test_an_entry_that_names_the_workspace_wrongly_is_refused(
    tmp_path: Path, server: McpServerSettings, reason: str
) -> None:
    home = prepare(tmp_path / "home", server)
    [refused] = await use(home, tmp_path / "w", ask(call("s__where")))
    assert reason in refused


async def test_a_start_folder_must_not_be_writable_by_a_run(tmp_path: Path) -> None:
    workspace, other = tmp_path / "w", tmp_path / "other"
    (workspace / "sub").mkdir(parents=True)
    other.mkdir()
    (other / "link").symlink_to(workspace / "sub")
    for cwd in (workspace, workspace / "sub", tmp_path, other / "link"):
        home = prepare(tmp_path / "home", make_plain_server(cwd=str(cwd)))
        [refused] = await use(home, workspace, ask(call("s__where")))
        assert "is a folder that a run can write, or contains one" in refused
    home = prepare(tmp_path / "home", make_plain_server(cwd=str(other)))
    assert (await ask_where(home, workspace))["folder"] == str(other)
    [refused] = await use(home, workspace, ask(call("s__where")), sandbox=SandboxPolicy(writable=(str(other),)))
    assert "is a folder that a run can write" in refused


async def test_writing_with_secrets_or_network_needs_an_explicit_approval(tmp_path: Path) -> None:
    server = make_secret_server(workspace="write")
    home, workspace = prepare(tmp_path / "home", server), tmp_path / "w"

    events = await run_script(home, make_agent(workspace))
    assert next(event.data for event in events if isinstance(event.data, RunStart)).tools == ()
    catalog = McpCatalog(lambda: {"s": server}, HomeApprovals(Home(home)), lambda: None)  # pyright: ignore[reportArgumentType]
    assert "Approve that: treadle mcp approve s --allow-write" in (catalog.explain("s__where") or "")
    with pytest.raises(
        ToolError, match=r"has secrets and the network\. Approve that: treadle mcp approve s --allow"
    ):
        await inspect(home)
    assert (await inspect(home, Consent(write=True))).allows_write
    written = await use(home, workspace, ask(call("s__write", path=str(workspace / "b.txt"), text="x")))
    assert written == ["1"]


async def test_a_writable_folder_of_an_entry_that_agents_write_too_needs_the_same_approval(tmp_path: Path) -> None:
    workspace, own = tmp_path / "w", tmp_path / "own"
    workspace.mkdir()
    own.mkdir()
    for folder in (workspace, tmp_path):
        home = prepare(tmp_path / "home", make_plain_server(network=True, writable=(str(folder),)))
        [refused] = await use(home, workspace, ask(call("s__where")))
        assert "which a run can write too, and has the network" in refused
    home = prepare(tmp_path / "home", make_plain_server(network=True, writable=(str(own),)))
    assert (await ask_where(home, workspace))["entries"] == []


def test_a_changed_access_needs_an_approval_again(tmp_path: Path) -> None:
    from treadle.mcp.pins import hash_entry

    hashes = {hash_entry(make_plain_server(workspace=access)) for access in ("none", "read", "write")}
    assert len(hashes) == 3
    assert hash_entry(make_plain_server()) == hash_entry(make_plain_server(workspace="read"))


# ── Code that is pinned by content ──


def make_pinned_home(tmp_path: Path, server: McpServerSettings, workspace: Path) -> Path:
    home = prepare(tmp_path / "home", server)
    agents = home / "agents" / "hero"
    agents.mkdir(parents=True)
    config = f"name: hero\nmodel: scripted/x\nworkspace: {workspace}\n"
    (agents / "config.yaml").write_text(config)
    return home


async def test_code_in_a_workspace_runs_only_as_it_was_pinned(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    tools = workspace / "tools"
    tools.mkdir(parents=True)
    script = tools / "server.py"
    shutil.copy(SERVERS / "place.py", script)
    (tools / "late.py").write_text("")
    home = make_pinned_home(tmp_path, McpServerSettings(command=PYTHON, args=(str(script),)), workspace)
    with pytest.raises(ToolError, match=r"which a run can write .* pin its content: treadle mcp approve s --pin"):
        await inspect(home)
    found = await inspect(home, Consent(content=True))
    assert [content.place for content in found.contents] == [str(tools)]
    evil = f"open({str(workspace / 'stolen.txt')!r}, 'w').write('x')"
    told, _, loaded = await use(
        home,
        workspace,
        ask(call("s__where")),
        ask(call("write_file", path="tools/late.py", content=evil)),
        ask(call("s__load", name="late")),
    )
    assert json.loads(told)["version"] == "original"
    assert loaded == json.dumps(str(tools / "late.py"))
    assert not (workspace / "stolen.txt").exists(), "the running server loads the pinned code, not the new one"
    [refused] = await use(home, workspace, ask(call("s__where")))
    assert f"{tools} has changed since it was approved" in refused
    [refused] = await use(home, workspace, ask(call("s__where")), sandbox=OFF)
    (tools / "late.py").write_text("")
    assert (await ask_where(home, workspace))["version"] == "original"
    [refused] = await use(home, workspace, ask(call("s__where")), sandbox=OFF)
    assert "pinned by content runs only in the sandbox" in refused


async def test_pinned_code_does_not_see_the_rest_of_the_workspace(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    script = workspace / "server.py"
    shutil.copy(SERVERS / "place.py", script)
    (workspace / "secret.txt").write_text("hello")
    home = make_pinned_home(tmp_path, McpServerSettings(command=PYTHON, args=(str(script),)), workspace)
    assert [content.place for content in (await inspect(home, Consent(content=True))).contents] == [str(script)]
    [unseen] = await use(home, workspace, ask(call("s__read", path=str(workspace / "secret.txt"))))
    assert "FileNotFoundError" in unseen
    home = write_home(home, s=McpServerSettings(command=PYTHON, args=(str(script),), workspace="read"))
    with pytest.raises(ToolError, match=r"cannot be used with `workspace: read`"):
        await inspect(home, Consent(content=True))


async def test_copies_are_removed_with_their_approval(tmp_path: Path) -> None:
    workspace = tmp_path / "w"
    workspace.mkdir()
    script = workspace / "server.py"
    shutil.copy(SERVERS / "place.py", script)
    home = make_pinned_home(tmp_path, McpServerSettings(command=PYTHON, args=(str(script),)), workspace)
    await inspect(home, Consent(content=True))
    copies = home / "mcp" / "contents"
    assert len(list(copies.iterdir())) == 1
    script.write_text(script.read_text() + "\n")
    await inspect(home, Consent(content=True))
    assert len(list(copies.iterdir())) == 1
    from treadle.home.mcp_status import HomeMcpStatus

    HomeMcpStatus(Home(home)).revoke("s", None)
    assert list(copies.iterdir()) == []
