"""A call that could not succeed is answered at once, and no reviewer is asked."""

from pathlib import Path
from typing import Any

import pytest

from tests.engine.running import agent, journal, opened
from tests.engine.test_approvals import TERMINAL, read_last_result, wait_for_approval
from treadle.domain.events import ApprovalRequested, ToolCallError
from treadle.domain.ids import RunId
from treadle.testing.models import ScriptedModel, ask, call, say

ASKS: dict[str, Any] = {"approvals": {"default": "ask"}}
READS: dict[str, Any] = {"approvals": {"default": "ask", "rules": [{"tool": "read_file", "do": "auto"}]}}


def fill(folder: Path) -> Path:
    workspace = folder / "work"
    workspace.mkdir()
    (workspace / "a.txt").write_text("one\ntwo two\n")
    (workspace / "b.bin").write_bytes(b"\0\1\2" * 100)
    (workspace / "sub").mkdir()
    (workspace / ".env").write_text("KEY=secret\n")
    (workspace / "link.txt").symlink_to(".env")
    return workspace


def edit(path: str, old: str, new: str = "x", **more: Any) -> Any:
    return call("edit_file", "c1", path=path, old=old, new=new, **more)


FAULTS = [
    (edit("a.txt", "three"), "does not occur exactly once"),
    (edit("a.txt", "two"), "does not occur exactly once"),
    (edit("a.txt", "one", "one"), "are the same"),
    (edit("a.txt", ""), "`old` is empty"),
    (edit("missing.txt", "one"), "is not there"),
    (edit("sub", "one"), "is a folder"),
    (edit("b.bin", "one"), "b.bin"),
    (edit("../outside.txt", "one"), "leads out of the workspace"),
    (call("write_file", "c1", path="sub", content="x"), "is a folder"),
    (call("write_file", "c1", path="sub/", content="x"), "names a folder"),
    (call("write_file", "c1", path="a.txt/b", content="x"), "is not a folder"),
    (call("write_file", "c1", path="a.txt/b/c", content="x"), "is not a folder"),
    (call("write_file", "c1", path="/etc/x", content="x"), "leads out of the workspace"),
    (call("read_file", "c1", path="missing.txt"), "is not there"),
    (call("read_file", "c1", path="sub"), "is a folder"),
    (call("bash", "c1", command="  "), "is empty"),
    (call("bash", "c1", command="vim x"), "no terminal"),
    (call("web_fetch", "c1", url="file:///etc/passwd"), "only http and https"),
    (call("memory_save", "c1", text=" "), "the text is empty"),
]
TOOLS = ["@files", "bash", "web_fetch", "memory_save"]


@pytest.mark.parametrize(("faulty", "told"), FAULTS)
async def test_a_call_that_cannot_succeed_asks_no_reviewer(tmp_path: Path, faulty: Any, told: str) -> None:
    model = ScriptedModel(ask(faulty), say("done"))

    async with opened(tmp_path, model) as engine:
        hero = agent(tools=TOOLS, workspace=str(fill(tmp_path)), **ASKS)
        run_id = await engine.submit(hero, "go", **TERMINAL)
        assert (await engine.wait(run_id)).text == "done"
        events = [event.data for event in await journal(engine, run_id)]
        assert not [data for data in events if isinstance(data, ApprovalRequested)]
        assert [data for data in events if isinstance(data, ToolCallError)]
        assert told in read_last_result(model)
        assert (await engine.service.replay(RunId(run_id))).is_same


@pytest.mark.parametrize(
    "possible",
    [
        edit("a.txt", "one"),
        edit("a.txt", "two", all=True),
        call("write_file", "c1", path="new/folder/x.txt", content="x"),
        call("write_file", "c1", path="a.txt", content="x"),
        call("write_file", "c1", path=".env", content="x"),
        call("read_file", "c1", path="a.txt"),
        edit(".env", "not there"),
        edit(".env", "KEY"),
        edit("link.txt", "not there"),
        edit("sub/../.env", "not there"),
        call("read_file", "c1", path=".env"),
    ],
)
async def test_other_calls_ask(tmp_path: Path, possible: Any) -> None:
    model = ScriptedModel(ask(possible), say("done"))

    async with opened(tmp_path, model) as engine:
        workspace = fill(tmp_path)
        run_id = await engine.submit(agent(tools=TOOLS, workspace=str(workspace), **ASKS), "go", **TERMINAL)
        await wait_for_approval(engine, run_id)
        assert not (workspace / "new").exists()
        assert (workspace / "a.txt").read_text() == "one\ntwo two\n"
        await engine.cancel(run_id)


@pytest.mark.parametrize(("settings", "is_shown"), [(READS, True), (ASKS, False)])
async def test_an_edit_shows_the_file_only_to_an_agent_that_may_read_it(
    tmp_path: Path, settings: dict[str, Any], is_shown: bool
) -> None:
    model = ScriptedModel(ask(edit("a.txt", "two  two")), say("done"))

    async with opened(tmp_path, model) as engine:
        hero = agent(tools=TOOLS, workspace=str(fill(tmp_path)), **settings)
        assert (await engine.run(hero, "go", **TERMINAL)).text == "done"
        assert ("was not found" in read_last_result(model)) is is_shown
        assert ("2\ttwo two" in read_last_result(model) or "two two" in read_last_result(model)) is is_shown
