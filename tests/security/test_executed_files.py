"""Files that other programs execute later: writing one always asks, and commands see existing ones read-only."""

from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.engine.running import agent, journal, opened
from tests.replay.test_replay import same
from treadle.core.tools.permissions import apply_rules
from treadle.domain.events import ApprovalRequested, ToolCallEnd, ToolCallError
from treadle.domain.executed_files import EXECUTED, find_executed_file, may_be_executed
from treadle.domain.permissions import ApprovalRule, ApprovalRules
from treadle.domain.tools import ToolSpec
from treadle.ports.approvals import Grant
from treadle.ports.tool import Concern, Subjects
from treadle.testing.models import ScriptedModel, ask, call, say

FILES = (
    ".git/hooks/pre-commit", ".git/config", ".husky/pre-push", ".envrc", ".vscode/tasks.json",
    ".github/workflows/ci.yml", ".gitlab-ci.yml", ".bashrc", "lib/evil.pth", "sitecustomize.py",
    ".pre-commit-config.yaml", "sub/.envrc", "sub/.git/hooks/post-checkout", ".claude/settings.json", ".mcp.json",
    "new/../.Envrc", "link/tasks.json", ".config/systemd/user/x.service", ".git/modules/a/hooks/pre-commit",
)  # fmt: skip
ORDINARY = (
    "README.md", "src/app.py", "tests/conftest.py", "Makefile", ".github/CODEOWNERS", "hooks/use_state.ts",
    "config", "docs/profile.md", ".git/hooks/pre-commit.sample", ".editorconfig", "package.json",
)  # fmt: skip


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / ".vscode").mkdir(parents=True)
    (folder / "link").symlink_to(".vscode")
    return folder


async def outcomes(
    tmp_path: Path, workspace: Path, names: tuple[str, ...], decision: Any = None, **settings: Any
) -> tuple[list[Any], list[ApprovalRequested]]:
    """Write these files. `decision` answers each approval; without it no reviewer can answer."""
    calls = [call("write_file", f"c{n:03}", path=name, content="x") for n, name in enumerate(names)]
    callbacks = None if decision is None else treadle.Callbacks(on_approval=lambda event: decision)

    model = ScriptedModel(ask(*calls), say("done"))
    async with opened(tmp_path, model, home=tmp_path / "treadle") as engine:
        hero = agent(tools=["@files"], workspace=workspace, limits={"max_steps": 99}, **settings)
        result = await engine.run(hero, "go", callbacks)
        await same(engine, result.run_id)  # a replay asks the journal, not the machine
        events = [event.data for event in await journal(engine, result.run_id)]
    ended = {data.call_id: data for data in events if isinstance(data, ToolCallEnd | ToolCallError)}
    return [ended[key] for key in sorted(ended)], [data for data in events if isinstance(data, ApprovalRequested)]


def list_files(folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("rules", [(), ({"tool": "write_file", "do": "auto"},), ({"tool": "*", "do": "auto"},)])
async def test_without_a_reviewer_none_is_written_whatever_the_rules_say(
    tmp_path: Path, project: Path, rules: tuple[dict[str, str], ...]
) -> None:
    ended, asked = await outcomes(tmp_path, project, FILES, approvals={"default": "auto", "rules": rules})
    assert asked == []
    for name, outcome in zip(FILES, ended, strict=True):
        assert isinstance(outcome, ToolCallError), name
        assert "executed later: it writes " in outcome.content, name
    assert list_files(project) == set()


async def test_a_reviewer_is_asked_for_each_and_learns_why(tmp_path: Path, project: Path) -> None:
    ended, asked = await outcomes(tmp_path, project, FILES, decision="approve", approvals={"default": "auto"})
    assert [isinstance(outcome, ToolCallEnd) for outcome in ended] == [True] * len(FILES)
    assert [request.concern for request in asked] == ["executed"] * len(FILES)
    assert [request.pattern for request in asked] == [None] * len(FILES)  # nothing is offered beyond this call
    assert "which git executes later (hooks)" in asked[0].reason
    assert f"{project}/.vscode/tasks.json, which an editor or a debugger executes later" in asked[4].reason


def test_no_rule_and_no_grant_allows_one() -> None:
    rules = ApprovalRules(rules=(ApprovalRule("write_file", "auto", "*"),))
    spec = ToolSpec(name="write_file", description="", schema={}, effect="write")
    for concern, verdict in ((None, "auto"), (Concern("executed", "git runs it", ("/w/.envrc",)), "ask")):
        subjects = Subjects((".envrc",), concern=concern)
        assert apply_rules(rules, spec, subjects, [Grant("write_file", "*")]).verdict == verdict


async def test_ordinary_files_are_written_without_asking(tmp_path: Path, project: Path) -> None:
    ended, asked = await outcomes(tmp_path, project, ORDINARY, approvals={"default": "auto"})
    assert asked == []
    assert [isinstance(outcome, ToolCallEnd) for outcome in ended] == [True] * len(ORDINARY)


async def test_hooks_and_settings_that_a_repository_names_need_an_approval_too(
    tmp_path: Path, project: Path
) -> None:
    (project / ".git").mkdir()
    settings = "[core]\n\tHooksPath = tools/git-hooks\n[include]\n\tpath = ../shared.cfg\n"
    (project / ".git" / "config").write_text(settings)
    names = ("tools/git-hooks/pre-commit", "shared.cfg", "tools/build.sh")
    ended, _ = await outcomes(tmp_path, project, names, approvals={"default": "auto"})
    assert [isinstance(outcome, ToolCallEnd) for outcome in ended] == [False, False, True]


async def test_an_approval_does_not_follow_a_link_that_was_changed_meanwhile(tmp_path: Path, project: Path) -> None:
    link = project / "target"
    link.symlink_to(".envrc")

    def swap(event: Any) -> Any:
        link.unlink()
        link.symlink_to(".bashrc")
        return "approve"

    model = ScriptedModel(ask(call("write_file", "c1", path="target", content="x")), say("done"))

    async def scenario() -> list[Any]:
        async with opened(tmp_path, model, home=tmp_path / "treadle") as engine:
            hero = agent(tools=["@files"], workspace=project)
            result = await engine.run(hero, "go", treadle.Callbacks(on_approval=swap))
            return [event.data for event in await journal(engine, result.run_id)]

    [ended] = [data for data in await scenario() if isinstance(data, ToolCallEnd | ToolCallError)]
    assert isinstance(ended, ToolCallError)
    assert "executes it later" in ended.content
    assert list_files(project) == set()


@pytest.mark.parametrize("entry", [entry for entries in EXECUTED.values() for entry in entries])
def test_every_entry_of_the_list_is_found_in_any_folder_and_any_case(entry: str) -> None:
    name = entry.replace("*", "any")
    for path in (f"/work/{name}", f"/work/deep/{name.upper()}"):
        assert find_executed_file(path) is not None, path
        assert may_be_executed(path.rpartition("/")[2])
