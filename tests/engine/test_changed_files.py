"""A call that changes files runs only while they contain what they contained when the call was shown."""

import asyncio
import fcntl
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.crash.test_kill import query
from tests.engine.running import Gate, agent, journal, opened
from tests.engine.test_approvals import TERMINAL, idle, read_last_result, wait_for_approval
from tests.fake_endpoint import Answer, FakeEndpoint, calls, fragment, says
from tests.patience import HANG_SECONDS
from tests.surfaces.shell import Shell, finish
from treadle.api.engine import HostedEngine
from treadle.domain.events import ApprovalRequested, ToolCallError, ToolCallStart
from treadle.domain.ids import RunId
from treadle.domain.tools import ToolSpec
from treadle.ports.tool import Observation, ToolContext
from treadle.testing.models import ScriptedModel, ask, call, say
from treadle.tools.files import make_file_tools, make_patch_tool
from treadle.tools.toolset import Proceed, wrap

CAREFUL: dict[str, Any] = {"tools": ["@files", "apply_patch"], "approvals": {"default": "ask"}}
CHANGED = "changed since it was shown"
TEXT = "one\ntwo\nthree\nfour\nfive\n"


def patch(*sections: str) -> Any:
    return call("apply_patch", "c1", input="*** Begin Patch\n" + "".join(sections) + "*** End Patch")


EDIT = call("edit_file", "c1", path="a.txt", old="one", new="1")
WRITE = call("write_file", "c1", path="a.txt", content="new\n")
CREATE = call("write_file", "c1", path="sub/new.txt", content="new\n")
UPDATE = "*** Update File: a.txt\n@@\n-one\n+1\n"
ADD = "*** Add File: sub/new.txt\n+new\n"
DELETE = "*** Delete File: b.txt\n"
MOVE = "*** Update File: b.txt\n*** Move to: sub/new.txt\n"


def extend_a(folder: Path) -> None:
    (folder / "a.txt").write_text(TEXT + "six\n")


def extend_b(folder: Path) -> None:
    (folder / "b.txt").write_text("other\nmore\n")


def remove_a(folder: Path) -> None:
    (folder / "a.txt").unlink()


def create_new(folder: Path) -> None:
    (folder / "sub").mkdir(exist_ok=True)
    (folder / "sub" / "new.txt").write_text("mine\n")


def link_a_elsewhere(folder: Path) -> None:
    (folder / "a.txt").unlink()
    (folder / "a.txt").symlink_to("copy.txt")


def touch_a(folder: Path) -> None:
    os.utime(folder / "a.txt", (1, 1))


def make_workspace(folder: Path) -> Path:
    workspace = folder / "work"
    workspace.mkdir()
    (workspace / "a.txt").write_text(TEXT)
    (workspace / "copy.txt").write_text(TEXT)
    (workspace / "b.txt").write_text("other\n")
    (workspace / ".env").write_text("KEY=1\n")
    return workspace


def read_files(folder: Path) -> dict[str, str]:
    return {str(path.relative_to(folder)): path.read_text() for path in folder.rglob("*") if path.is_file()}


async def find_start(engine: HostedEngine, run_id: str) -> list[ToolCallStart]:
    return [event.data for event in await journal(engine, run_id) if isinstance(event.data, ToolCallStart)]


@pytest.mark.parametrize(
    ("step", "change"),
    [
        pytest.param(EDIT, extend_a, id="edit"),
        pytest.param(EDIT, remove_a, id="edit of a file that is removed"),
        pytest.param(EDIT, link_a_elsewhere, id="edit of a file that becomes a link to an equal one"),
        pytest.param(WRITE, extend_a, id="write"),
        pytest.param(WRITE, remove_a, id="write of a file that is removed"),
        pytest.param(CREATE, create_new, id="write of a new file"),
        pytest.param(patch(UPDATE), extend_a, id="patch"),
        pytest.param(patch(UPDATE, ADD), create_new, id="patch that adds a file"),
        pytest.param(patch(UPDATE, DELETE), extend_b, id="patch that deletes a file"),
        pytest.param(patch(UPDATE, MOVE), extend_b, id="patch that moves a file"),
        pytest.param(patch(MOVE), create_new, id="patch that moves a file to a name that is taken"),
    ],
)
@pytest.mark.parametrize("restarted", [False, True])
async def test_an_approved_change_of_a_file_that_changed_writes_nothing(
    tmp_path: Path, step: Any, change: Callable[[Path], None], restarted: bool
) -> None:
    workspace, model = make_workspace(tmp_path), ScriptedModel(ask(step), say("done"))
    hero = agent(workspace=str(workspace), **CAREFUL)

    async def scenario() -> None:
        async with opened(tmp_path, model) as engine:
            run_id = await engine.submit(hero, "go", **TERMINAL)
            request = await wait_for_approval(engine, run_id)
            assert request.files
            await idle(engine)
            if not restarted:
                await approve(engine, run_id, request)
        if restarted:
            async with opened(tmp_path, model) as engine:
                await approve(engine, run_id, request)

    async def approve(engine: HostedEngine, run_id: str, request: ApprovalRequested) -> None:
        change(workspace)
        before = read_files(workspace)
        await engine.decide(request.approval_id, "approve")
        await engine.wait(run_id)
        assert read_files(workspace) == before
        assert [start.files for start in await find_start(engine, run_id)] == [request.files]
        assert (await engine.service.replay(RunId(run_id))).is_same

    await scenario()
    told = read_last_result(model)
    assert CHANGED in told
    assert "Read it again" in told


@pytest.mark.parametrize(
    ("step", "change"),
    [
        (EDIT, touch_a),
        (WRITE, extend_b),
        (CREATE, extend_a),
        (patch(UPDATE, ADD, DELETE), touch_a),
        (patch(MOVE), extend_a),
    ],
)
async def test_an_approved_change_is_made_if_other_things_changed(
    tmp_path: Path, step: Any, change: Callable[[Path], None]
) -> None:
    workspace, model = make_workspace(tmp_path), ScriptedModel(ask(step), say("done"))

    async with opened(tmp_path, model) as engine:
        run_id = await engine.submit(agent(workspace=str(workspace), **CAREFUL), "go", **TERMINAL)
        request = await wait_for_approval(engine, run_id)
        change(workspace)
        before = read_files(workspace)
        await engine.decide(request.approval_id, "approve")
        await engine.wait(run_id)
        assert read_files(workspace) != before
        assert not [each for each in await journal(engine, run_id) if isinstance(each.data, ToolCallError)]


@pytest.mark.parametrize(("edited", "is_refused"), [("a.txt", True), ("copy.txt", False)])
async def test_edited_arguments_are_bound_to_the_files_that_were_shown(
    tmp_path: Path, edited: str, is_refused: bool
) -> None:
    workspace, model = make_workspace(tmp_path), ScriptedModel(ask(EDIT), say("done"))

    async with opened(tmp_path, model) as engine:
        run_id = await engine.submit(agent(workspace=str(workspace), **CAREFUL), "go", **TERMINAL)
        request = await wait_for_approval(engine, run_id)
        extend_a(workspace)
        arguments = {"path": edited, "old": "two", "new": "2"}
        await engine.decide(request.approval_id, "approve", arguments=arguments)
        await engine.wait(run_id)
    assert (CHANGED in read_last_result(model)) is is_refused
    assert ("2\n" in (workspace / edited).read_text()) is not is_refused


async def test_a_private_file_is_bound_without_being_read(tmp_path: Path) -> None:
    """Its digest would let a reader of the journal guess a short secret."""
    step = call("edit_file", "c1", path=".env", old="KEY", new="NAME")
    workspace, model = make_workspace(tmp_path), ScriptedModel(ask(step), say("done"), ask(step), say("done"))

    async def approve(engine: HostedEngine, change: Callable[[], object]) -> None:
        run_id = await engine.submit(agent(workspace=str(workspace), **CAREFUL), "go", **TERMINAL)
        request = await wait_for_approval(engine, run_id)
        assert [(each.path, (each.state or "")[:7]) for each in request.files] == [(".env", "status:")]
        change()
        await engine.decide(request.approval_id, "approve")
        await engine.wait(run_id)

    async def scenario() -> None:
        async with opened(tmp_path, model) as engine:
            await approve(engine, lambda: (workspace / ".env").write_text("KEY=2\n"))
            assert CHANGED in read_last_result(model)
            await approve(engine, lambda: None)

    await scenario()
    assert (workspace / ".env").read_text() == "NAME=2\n"


# ── Without a question ──


class Meddler:
    """Another program, which changes a file after a call was shown, just before the tool runs."""

    def __init__(self, change: Callable[[], None]) -> None:
        self._change = change

    async def __call__(
        self, spec: ToolSpec, arguments: Any, context: ToolContext, proceed: Proceed
    ) -> str | Observation:
        if spec.effect == "write":
            self._change()
        return await proceed(arguments)


ALLOWED = {"default": "ask", "rules": [{"tool": "*", "do": "auto"}]}


@pytest.mark.parametrize("step", [EDIT, WRITE, patch(UPDATE, ADD)])
@pytest.mark.parametrize("approvals", [{"default": "auto"}, ALLOWED], ids=["no rules", "auto rule"])
async def test_a_change_without_a_question_is_bound_from_its_start(
    tmp_path: Path, step: Any, approvals: dict[str, Any]
) -> None:
    workspace, model = make_workspace(tmp_path), ScriptedModel(ask(step), say("done"))
    meddler = Meddler(lambda: extend_a(workspace))
    tools = [*make_file_tools().wrapped(meddler), wrap(make_patch_tool(), meddler)]

    async with opened(tmp_path, model) as engine:
        await engine.run(agent(workspace=str(workspace), tools=tools, approvals=approvals), "go")
    assert CHANGED in read_last_result(model)
    assert (workspace / "a.txt").read_text() == TEXT + "six\n"
    assert not (workspace / "sub").exists()


async def test_a_change_by_a_grant_is_bound_from_its_start(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path)
    model = ScriptedModel(ask(EDIT), ask(call("edit_file", "c2", path="a.txt", old="two", new="2")), say("done"))
    edits = 0

    def change_before_the_second() -> None:
        nonlocal edits
        edits += 1
        if edits == 2:
            extend_a(workspace)

    tools = list(make_file_tools().wrapped(Meddler(change_before_the_second)))

    async with opened(tmp_path, model) as engine:
        hero = agent(workspace=str(workspace), tools=tools, approvals={"default": "ask"})
        run_id = await engine.submit(hero, "go", **TERMINAL)
        request = await wait_for_approval(engine, run_id)
        await engine.decide(request.approval_id, "approve", remember="session")
        await engine.wait(run_id)
        assert len(await find_start(engine, run_id)) == 2
    assert CHANGED in read_last_result(model)
    assert (workspace / "a.txt").read_text() == TEXT + "six\n"


@pytest.mark.parametrize(("found", "is_refused"), [("new\n", False), (TEXT, False), ("edited meanwhile\n", True)])
async def test_a_write_that_is_repeated_after_a_crash_overwrites_only_what_was_shown(
    tmp_path: Path, found: str, is_refused: bool
) -> None:
    """Whether the first attempt wrote the file is not known, so its own text is accepted too."""
    workspace, gate = make_workspace(tmp_path), Gate()

    class Stuck:
        async def __call__(
            self, spec: ToolSpec, arguments: Any, context: ToolContext, proceed: Proceed
        ) -> str | Observation:
            if not gate.reached.is_set():
                await gate.pass_through()
            return await proceed(arguments)

    tools = list(make_file_tools().wrapped(Stuck()))
    model = ScriptedModel(say("done"))

    async with opened(tmp_path, ScriptedModel(ask(WRITE))) as engine:
        run_id = await engine.submit(agent(workspace=str(workspace), tools=tools), "go")
        await gate.reached.wait()
    (workspace / "a.txt").write_text(found)
    async with opened(tmp_path, model) as engine:
        engine.add_tools(*tools)
        await engine.wait(run_id)
        first, second = await find_start(engine, run_id)
        assert (first.files, first.attempt, second.attempt) == (second.files, 1, 2)
    assert (CHANGED in read_last_result(model)) is is_refused
    assert (workspace / "a.txt").read_text() == (found if is_refused else "new\n")


# ── Other processes ──


def configure(shell: Shell, workspace: Path, approvals: str) -> None:
    shell.configure()
    text = f"name: default\nmodel: fake/m\ntools: ['@files']\nworkspace: {workspace}\n{approvals}\n"
    shell.write("agents/default/config.yaml", text)


def asks(name: str, **arguments: str) -> Answer:
    return calls(fragment(0, "c1", name, json.dumps(arguments)))


def read_told(server: FakeEndpoint) -> str:
    return server.requests[-1].json["messages"][-1]["content"]


async def test_an_approval_from_another_process_is_bound(tmp_path: Path) -> None:
    """The run waits, its process ends, the user edits the file, and approves on the command line."""
    workspace = make_workspace(tmp_path)

    async with FakeEndpoint(asks("edit_file", path="a.txt", old="one", new="1"), says("I see.")) as server:
        shell = Shell(tmp_path / "home", server.url)
        configure(shell, workspace, "approvals: {default: ask, via: api}")
        waiting = await shell("run", "change it")
        assert waiting.code == 4, waiting.err
        extend_a(workspace)
        [approval] = (await shell("approvals", "list", "--json")).json
        done = await shell("approvals", "approve", approval["approval_id"])
        assert (done.code, done.out) == (0, "I see.\n"), done.err
        assert CHANGED in read_told(server)
    assert (workspace / "a.txt").read_text() == TEXT + "six\n"


async def test_a_write_that_kill_9_interrupted_does_not_overwrite_what_the_user_wrote_since(tmp_path: Path) -> None:
    workspace = make_workspace(tmp_path)

    async with FakeEndpoint(asks("write_file", path="a.txt", content="new\n"), says("I see.")) as server:
        shell = Shell(tmp_path / "home", server.url)
        configure(shell, workspace, "")
        with (workspace / "a.txt").open() as held:
            fcntl.flock(held, fcntl.LOCK_EX)  # the tool waits for it
            process = shell.start("run", "change it")
            async with asyncio.timeout(HANG_SECONDS):
                while not list_starts(shell):  # noqa: ASYNC110 -- another process writes
                    await asyncio.sleep(0.02)
            process.kill()
            await finish(process)
            extend_a(workspace)
        [(run_id,)] = list_starts(shell)
        done = await shell("runs", "resume", run_id)
        assert (done.code, done.out) == (0, "I see.\n"), done.err
        assert CHANGED in read_told(server)
    assert (workspace / "a.txt").read_text() == TEXT + "six\n"


def list_starts(shell: Shell) -> list[tuple[Any, ...]]:
    """Return the runs that have started a call."""
    return query(shell, "SELECT run_id FROM runs JOIN events ON run = id WHERE type = 'tool_call_start'")
