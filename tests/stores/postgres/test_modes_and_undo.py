"""Modes, plans and undone files of a session whose runs execute in another process."""

from pathlib import Path
from typing import Any

from tests.engine.running import agent, until
from tests.engine.test_approvals import wait_for_approval
from tests.stores.postgres.test_engines import NOTHING, engine
from treadle.domain.ids import RunId, SessionId
from treadle.operations.approval_service import Answer
from treadle.operations.file_changes import FILES, UNDO_FILES, ListChangedFiles, UndoFiles
from treadle.testing.models import ScriptedModel, ask, call, say


async def test_a_plan_and_a_mode_of_this_process_count_in_another_one(url: str, tmp_path: Path) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    tools: Any = {"tools": ["write_file", "update_plan"], "approvals": {"default": "ask"}}
    hero = agent(workspace=str(workspace), **tools)
    plan = ask(call("update_plan", "p1", entries=[{"content": "write a"}], for_approval=True))
    written = (ask(call("write_file", f"c{name}", path=name, content="x")) for name in "ab")
    model = ScriptedModel(plan, next(written), say("written"), next(written), say("denied"))
    async with engine(url, tmp_path, share=NOTHING) as here, engine(url, tmp_path, model) as there:
        run_id = await here.submit(hero, "go", mode="plan", asker="terminal")
        request = await wait_for_approval(here, run_id)
        assert request.is_plan
        await here.service.decide(request.approval_id, Answer("approve", mode="accept_edits", by="ada"))
        assert (await here.wait(run_id)).text == "written"
        assert (workspace / "a").exists()
        session = (await there.service.run(RunId(run_id))).origin.session_id
        assert (await there.service.session(session)).mode == "accept_edits"
        await here.service.modes.change(SessionId(session), "ask", "ada")
        later = await here.submit(hero, "more", session=session, asker="terminal")
        await until(here, later, "run_waiting")
        assert not (workspace / "b").exists()
        await here.decide((await wait_for_approval(here, later)).approval_id, "deny")
        assert (await here.wait(later)).text == "denied"


async def test_files_that_another_process_changed_are_restored_here(url: str, tmp_path: Path) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    (workspace / "a").write_text("before")
    hero = agent(tools=["write_file"], workspace=str(workspace))
    model = ScriptedModel(ask(call("write_file", path="a", content="after")), say("changed"))
    async with engine(url, tmp_path, share=NOTHING) as here, engine(url, tmp_path, model):
        run_id = RunId(await here.submit(hero, "go"))
        assert (await here.wait(run_id)).text == "changed"
        assert (workspace / "a").read_text() == "after"
        found = await here.call(FILES, ListChangedFiles(run_id, later=True))
        assert [Path(file.path).name for file in found.files] == ["a"]
        done = await here.call(UNDO_FILES, UndoFiles(run_id, later=True))
        assert [file.state for file in done.files] == ["restored"]
        assert (workspace / "a").read_text() == "before"
