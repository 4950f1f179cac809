"""apply_patch: which models get it, and what it may touch."""

from pathlib import Path
from typing import Any

import pytest

from tests.engine.running import agent, journal, opened, until
from tests.engine.test_approvals import TERMINAL, read_last_result, wait_for_approval
from treadle.domain.errors import UsageError
from treadle.domain.events import ApprovalRequested, RunStart, ToolCallEnd, ToolCallError
from treadle.domain.ids import RunId
from treadle.domain.models import Profile
from treadle.domain.providers import ProviderConfig
from treadle.models.catalog import Catalog
from treadle.testing.models import ScriptedModel, ask, call, say

WRITER: dict[str, Any] = {"tools": ["@files"]}
UPDATE = "*** Update File: a.txt\n@@\n-one\n+1\n"
ADD = "*** Add File: new.txt\n+x\n"


def patch(*sections: str) -> Any:
    return call("apply_patch", "c1", input="*** Begin Patch\n" + "".join(sections) + "*** End Patch")


async def run(folder: Path, step: Any, **settings: Any) -> list[Any]:
    """Run one call of a model that is trained on patches, without a reviewer, and return the events."""
    workspace = folder / "work"
    if not workspace.exists():
        workspace.mkdir()
        (workspace / "a.txt").write_text("one\ntwo\n")

    home = folder / "home"
    home.mkdir(exist_ok=True)
    (home / "config.yaml").write_text("models: {scripted/x: {patches: true}}\n")
    async with opened(folder, ScriptedModel(step, say("done"))) as engine:
        result = await engine.run(agent(workspace=str(workspace), **{**WRITER, **settings}), "go")
        assert (await engine.service.replay(result.run_id)).is_same
        return [event.data for event in await journal(engine, result.run_id)]


def find_tools(events: list[Any]) -> list[str]:
    return [spec.name for data in events if isinstance(data, RunStart) for spec in data.tools]


def find_end(events: list[Any]) -> ToolCallEnd | ToolCallError:
    return next(data for data in events if isinstance(data, ToolCallEnd | ToolCallError))


async def test_a_model_that_is_trained_on_patches_gets_them_instead_of_edits(tmp_path: Path) -> None:
    events = await run(tmp_path, ask(patch(UPDATE, ADD)))
    assert find_tools(events) == ["apply_patch", "glob", "grep", "read_file", "write_file"]
    assert isinstance(find_end(events), ToolCallEnd)
    assert (tmp_path / "work" / "a.txt").read_text() == "1\ntwo\n"
    assert (tmp_path / "work" / "new.txt").read_text() == "x\n"


async def test_an_agent_that_may_not_write_files_gets_no_patches(tmp_path: Path) -> None:
    events = await run(tmp_path, say("nothing"), tools=["read_file", "edit_file"])
    assert find_tools(events) == ["edit_file", "read_file"]


async def test_other_models_get_patches_only_by_name(tmp_path: Path) -> None:
    async def scenario(tools: list[str]) -> list[str]:
        async with opened(tmp_path, ScriptedModel(say("done"))) as engine:
            result = await engine.run(agent(tools=tools), "go")
            return find_tools([event.data for event in await journal(engine, result.run_id)])

    assert "apply_patch" not in await scenario(["*"])
    assert await scenario(["apply_patch"]) == ["apply_patch"]


@pytest.mark.parametrize(
    ("model", "expected"),
    [
        ("gpt-6-sol", True),
        ("gpt-5-codex", True),
        ("openai/gpt-4.1", True),
        ("openai/gpt-oss-20b", True),
        ("gpt-4o", False),
        ("gpt-5-chat-latest", False),
        ("claude-opus-5-5", False),
        ("qwen3", False),
    ],
)
def test_profiles_of_known_models_ask_for_patches(model: str, expected: bool) -> None:
    config = ProviderConfig(base_url="http://127.0.0.1:1/v1", api_mode="chat_completions")
    assert Catalog().profile("acme", model, config).patches is expected
    assert not Profile().patches


@pytest.mark.parametrize(
    ("sections", "reason"),
    [
        (("*** Add File: .ssh/authorized_keys\n+x\n",), "executed later"),
        (("*** Update File: .env\n@@\n-KEY=1\n+KEY=2\n",), "private place"),
        ((UPDATE, "*** Delete File: .env\n"), "private place"),
        (("*** Update File: a.txt\n*** Move to: .env.local\n@@\n-one\n+1\n",), "private place"),
        (("*** Add File: .git/hooks/pre-commit\n+x\n",), "executed later"),
        ((ADD, "*** Add File: .vscode/tasks.json\n+{}\n"), "executed later"),
        (("*** Update File: a.txt\n*** Move to: .envrc\n@@\n-one\n+1\n",), "executed later"),
        (("*** Update File: link\n@@\n-KEY=1\n+KEY=2\n",), "private place"),
    ],
)
async def test_every_file_of_a_patch_is_protected(tmp_path: Path, sections: tuple[str, ...], reason: str) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    (workspace / "a.txt").write_text("one\ntwo\n")
    (workspace / ".env").write_text("KEY=1\n")
    (workspace / "link").symlink_to(".env")
    end = find_end(await run(tmp_path, ask(patch(*sections))))
    assert isinstance(end, ToolCallError)
    assert end.kind == "denied"
    assert reason in end.content
    assert sorted(path.name for path in workspace.iterdir()) == [".env", "a.txt", "link"]
    assert (workspace / "a.txt").read_text() == "one\ntwo\n"


EDITS_ALLOWED = {"approvals": {"default": "ask", "rules": [{"tool": "edit_file", "do": "auto"}]}}
WRITES_DENIED = {"approvals": {"rules": [{"tool": "write_file", "match": "new*", "do": "deny"}]}}
EDITS_DENIED = {"approvals": {"rules": [{"tool": "edit_file", "do": "deny"}]}}
CHANGING = ("apply_patch", "write_file", "edit_file")
PATHS_ALLOWED = {
    "approvals": {"default": "ask", "rules": [{"tool": tool, "match": "*", "do": "auto"} for tool in CHANGING]}
}
DELETE = "*** Delete File: a.txt\n"
ALL_ALLOWED = {"approvals": {"default": "ask", "rules": [{"tool": "apply_patch", "do": "auto"}]}}


@pytest.mark.parametrize(
    ("settings", "sections", "runs"),
    [
        (EDITS_ALLOWED, (UPDATE,), True),
        (EDITS_ALLOWED, (ADD,), False),
        (EDITS_ALLOWED, (UPDATE, ADD), False),
        (EDITS_ALLOWED, ("*** Delete File: a.txt\n",), False),
        (EDITS_ALLOWED, ("*** Update File: a.txt\n*** Move to: b.txt\n",), False),
        (WRITES_DENIED, (UPDATE,), True),
        (WRITES_DENIED, (UPDATE, ADD), False),
        (EDITS_DENIED, (ADD,), True),
        (EDITS_DENIED, (UPDATE,), False),
        (EDITS_DENIED, ("*** Update File: a.txt\n*** Move to: b.txt\n@@\n-one\n+1\n",), False),
        (ALL_ALLOWED, (UPDATE, ADD), True),
        (ALL_ALLOWED, (DELETE,), True),
        (PATHS_ALLOWED, (UPDATE, ADD), True),
        (PATHS_ALLOWED, ("*** Update File: a.txt\n*** Move to: b.txt\n",), True),
        (PATHS_ALLOWED, (DELETE,), False),
        (PATHS_ALLOWED, (ADD, DELETE), False),
    ],
)
async def test_rules_for_edits_and_for_writes_hold_for_a_patch(
    tmp_path: Path, settings: dict[str, Any], sections: tuple[str, ...], runs: bool
) -> None:
    end = find_end(await run(tmp_path, ask(patch(*sections)), **settings))
    assert isinstance(end, ToolCallEnd) is runs, end.content


async def test_a_grant_for_a_path_does_not_cover_its_deletion(tmp_path: Path) -> None:
    workspace = tmp_path / "work"
    workspace.mkdir()
    (workspace / "a.txt").write_text("one\ntwo\n")
    again = call("apply_patch", "c2", input="*** Begin Patch\n*** Update File: a.txt\n@@\n-two\n+2\n*** End Patch")
    deletion = call("apply_patch", "c3", input=f"*** Begin Patch\n{DELETE}*** End Patch")
    model = ScriptedModel(ask(patch(UPDATE)), ask(again), ask(deletion), say("done"))

    async with opened(tmp_path, model) as engine:
        hero = agent(tools=["apply_patch"], workspace=str(workspace), approvals={"default": "ask"})
        run_id = await engine.submit(hero, "go", **TERMINAL)
        first = await wait_for_approval(engine, run_id)
        assert first.pattern == "a.txt"
        waiting = await until(engine, run_id, "run_waiting")
        await engine.decide(first.approval_id, "approve", remember="session")
        await until(engine, run_id, "run_waiting", after=waiting.sequence)
        assert (workspace / "a.txt").read_text() == "1\n2\n"
        [pending] = await engine.service.approvals(RunId(run_id))
        assert (pending.pattern, pending.reason) == (
            None,
            "it deletes `a.txt`; `apply_patch` is on ask by default",
        )
        rule = await engine.service.approval_service.explain_rule(pending.approval_id, "a.txt")
        assert rule == pending.reason
        with pytest.raises(UsageError, match="only once"):
            await engine.decide(pending.approval_id, "approve", remember="session")
        await engine.decide(pending.approval_id, "approve")
        await engine.wait(run_id)
        assert not (workspace / "a.txt").exists()


@pytest.mark.parametrize(
    ("faulty", "told"),
    [
        (patch("*** Update File: a.txt\n@@\n-three\n+3\n"), "does not occur exactly once"),
        (patch("*** Update File: missing.txt\n@@\n-one\n+1\n"), "is not there"),
        (patch("*** Add File: a.txt\n+x\n"), "is there already"),
        (patch(UPDATE, "*** Delete File: missing.txt\n"), "is not there"),
        (patch("*** Update File: a.txt\n*** Move to: ../b.txt\n"), "leads out of the workspace"),
        (patch(ADD, "*** Delete File: link.txt\n"), "link.txt is a link to a.txt. Name that file"),
        (call("apply_patch", "c1", input="*** Begin Patch"), "cut off"),
        (
            call("edit_file", "c1", path="a.txt", edits=[{"old": "one", "new": "1"}, {"old": "x", "new": "y"}]),
            "once",
        ),
    ],
)
async def test_a_change_that_cannot_succeed_asks_no_reviewer(tmp_path: Path, faulty: Any, told: str) -> None:
    events, result = await ask_about(tmp_path, faulty)
    assert not [data for data in events if isinstance(data, ApprovalRequested)]
    assert told in result


@pytest.mark.parametrize(
    "possible",
    [
        patch(UPDATE, ADD),
        call("edit_file", "c1", path="b.py", old="if a:\n  b\n", new="if a:\n  c\n"),
        call("edit_file", "c1", path="b.py", edits=[{"old": "a", "new": "x"}, {"old": "x:", "new": "y:"}]),
    ],
)
async def test_a_change_that_the_tool_would_make_asks(tmp_path: Path, possible: Any) -> None:
    """The check before an approval finds the same text as the tool."""
    events, _ = await ask_about(tmp_path, possible)
    assert [data for data in events if isinstance(data, ApprovalRequested)]


async def ask_about(tmp_path: Path, step: Any) -> tuple[list[Any], str]:
    workspace = tmp_path / "work"
    workspace.mkdir()
    (workspace / "a.txt").write_text("one\ntwo\n")
    (workspace / "b.py").write_text("if a:\n    b\n")
    (workspace / "link.txt").symlink_to("a.txt")
    model = ScriptedModel(ask(step), say("done"))

    async with opened(tmp_path, model) as engine:
        hero = agent(tools=["@files", "apply_patch"], workspace=str(workspace), approvals={"default": "ask"})
        run_id = await engine.submit(hero, "go", **TERMINAL)
        try:
            await wait_for_approval(engine, run_id)
            await engine.cancel(run_id)
        except AssertionError:  # the run ended without one
            pass
        await engine.wait(run_id)
        events = [event.data for event in await journal(engine, run_id)]
        return events, read_last_result(model) if len(model.requests) > 1 else ""
