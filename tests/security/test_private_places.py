"""Private places: reading one asks for approval, or is refused where no reviewer can answer, in every tool."""

import os
from pathlib import Path
from typing import Any

import pytest

import treadle
from tests.engine.running import agent, journal, opened
from tests.replay.test_replay import same
from tests.sandbox.conftest import needs_bubblewrap
from treadle.domain.events import ApprovalRequested, ToolCallEnd, ToolCallError
from treadle.domain.permissions import SandboxPolicy
from treadle.domain.private_paths import CREDENTIALS, SYSTEM, classify_name, find_private_place
from treadle.ports.sandbox import Command
from treadle.sandbox.commands import ShellCommands
from treadle.testing.models import ScriptedModel, ask, call, say

CANARY = "canary-9c1d"
FILES = (
    ".ssh/id_ed25519", ".git-credentials", ".config/gh/hosts.yml", ".docker/config.json", ".npmrc", ".bash_history",
    ".zsh_history", ".aws/credentials", ".netrc", ".pypirc", ".cargo/credentials.toml", ".kube/config", ".env",
    ".config/gcloud/access_tokens.db", ".gnupg/private-keys-v1.d/x.key", ".mozilla/firefox/x.default/logins.json",
    ".password-store/mail.gpg", ".local/share/keyrings/login.keyring", ".terraform.d/credentials.tfrc.json",
    ".azure/accessTokens.json", ".python_history", "project/.env.local", "project/server.pem", "id_rsa",
)  # fmt: skip


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The home of a user, which is the workspace too."""
    folder = tmp_path / "user"
    for name in FILES:
        file = folder / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{CANARY}\n")
    (folder / "note.txt").write_text("nothing special\n")
    (folder / ".env.example").write_text("TOKEN=\n")
    (folder / "plain").symlink_to(".ssh/id_ed25519")
    (folder / "folder").symlink_to(".config")
    os.link(folder / ".ssh/id_ed25519", folder / "hard")
    monkeypatch.setenv("HOME", str(folder))
    return folder


async def outcomes(
    tmp_path: Path, workspace: Path, *calls: tuple[str, dict[str, Any]], decision: Any = None, **settings: Any
) -> tuple[list[Any], list[ApprovalRequested]]:
    """Run these calls. `decision` answers each approval; without it no reviewer can answer."""
    step = ask(*(call(name, f"c{n:03}", **arguments) for n, (name, arguments) in enumerate(calls)))
    callbacks = None if decision is None else treadle.Callbacks(on_approval=lambda event: decision)

    async with opened(tmp_path, ScriptedModel(step, say("done")), home=tmp_path / "treadle") as engine:
        hero = agent(tools=["@files"], workspace=workspace, limits={"max_steps": 99}, **settings)
        result = await engine.run(hero, "go", callbacks)
        await same(engine, result.run_id)  # a replay asks the journal, not the machine
        events = [event.data for event in await journal(engine, result.run_id)]
    ended = {data.call_id: data for data in events if isinstance(data, ToolCallEnd | ToolCallError)}
    return [ended[key] for key in sorted(ended)], [data for data in events if isinstance(data, ApprovalRequested)]


READS: list[tuple[str, dict[str, Any]]] = [
    *(("read_file", {"path": name}) for name in FILES),
    *(("grep", {"pattern": ".", "path": name}) for name in FILES),
    ("read_file", {"path": "plain"}),
    ("read_file", {"path": "folder/gh/hosts.yml"}),
    ("read_file", {"path": "project/../.ssh/./id_ed25519"}),
    ("read_file", {"path": "hard"}),
    ("grep", {"pattern": ".", "path": "hard"}),
    ("grep", {"pattern": ".", "path": "plain"}),
    ("grep", {"pattern": ".", "path": ".ssh"}),
    ("grep", {"pattern": ".", "path": "folder/gh"}),
    ("glob", {"pattern": "*", "path": ".ssh"}),
    ("edit_file", {"path": ".env", "old": CANARY, "new": "x"}),
    ("edit_file", {"path": ".ssh/id_ed25519", "old": "guess", "new": "x"}),
    ("write_file", {"path": ".ssh/authorized_keys", "content": "x"}),
]


async def test_no_tool_reads_a_private_place_without_a_reviewer(tmp_path: Path, home: Path) -> None:
    ended, asked = await outcomes(tmp_path, home, *READS)
    assert asked == []
    for (name, arguments), outcome in zip(READS, ended, strict=True):
        assert isinstance(outcome, ToolCallError), (name, arguments, outcome)
        assert outcome.kind == "denied", (name, arguments, outcome)
        assert "private place" in outcome.content, (name, arguments)
        assert CANARY not in outcome.content
    assert (home / ".env").read_text() == f"{CANARY}\n"
    assert not (home / ".ssh/authorized_keys").exists()


async def test_an_absolute_path_through_proc_self_gives_no_access(tmp_path: Path, home: Path) -> None:
    """Also where the workspace is the root of the file system, in which no path leads outside."""
    key = f"{home}/.ssh/id_ed25519"
    names = [
        key,
        f"/proc/self/root{key}",
        f"/proc/self/cwd/../../..{key}",
        "/proc/self/environ",
        f"/proc/1/root{key}",
    ]
    calls = [("read_file", {"path": name}) for name in names]
    ended, _ = await outcomes(tmp_path, Path("/"), *calls)
    for name, outcome in zip(names, ended, strict=True):
        assert isinstance(outcome, ToolCallError), name
        assert CANARY not in outcome.content


async def test_a_reviewer_is_asked_and_the_approval_is_for_that_path(tmp_path: Path, home: Path) -> None:
    calls: list[tuple[str, dict[str, Any]]] = [
        ("read_file", {"path": ".ssh/id_ed25519"}),
        ("grep", {"pattern": "canary", "path": ".config/gh"}),
        ("read_file", {"path": "hard"}),
    ]
    ended, asked = await outcomes(tmp_path, home, *calls, decision="approve")
    assert [isinstance(outcome, ToolCallEnd) and CANARY in outcome.content for outcome in ended] == [True] * 3
    assert [request.reason.startswith("private place: ") for request in asked] == [True] * 3
    assert f"{home}/.ssh/id_ed25519" in asked[0].reason
    assert [request.pattern for request in asked] == [None] * 3  # no rule for all such calls is offered


async def test_a_denied_file_is_not_read(tmp_path: Path, home: Path) -> None:
    ended, asked = await outcomes(tmp_path, home, ("read_file", {"path": ".npmrc"}), decision="deny")
    assert len(asked) == 1
    assert CANARY not in ended[0].content


@pytest.mark.parametrize("default", ["ask", "auto"])
async def test_a_rule_that_allows_a_tool_does_not_allow_private_places(
    tmp_path: Path, home: Path, default: str
) -> None:
    rules = [{"tool": "read_file", "do": "auto"}, {"tool": "grep", "do": "auto", "match": "*"}]
    calls = [("read_file", {"path": ".npmrc"}), ("grep", {"pattern": ".", "path": ".npmrc"})]
    ended, _ = await outcomes(tmp_path, home, *calls, approvals={"default": default, "rules": rules})
    assert all(isinstance(outcome, ToolCallError) and CANARY not in outcome.content for outcome in ended)


async def test_an_approval_does_not_follow_a_link_that_was_changed_meanwhile(tmp_path: Path, home: Path) -> None:
    link = home / "link"
    link.symlink_to(".npmrc")

    def swap(event: Any) -> Any:
        link.unlink()
        link.symlink_to(".ssh/id_ed25519")
        return "approve"

    model = ScriptedModel(ask(call("read_file", "c1", path="link")), say("done"))

    async def scenario() -> list[Any]:
        async with opened(tmp_path, model, home=tmp_path / "treadle") as engine:
            hero = agent(tools=["@files"], workspace=home)
            result = await engine.run(hero, "go", treadle.Callbacks(on_approval=swap))
            return [event.data for event in await journal(engine, result.run_id)]

    [ended] = [data for data in await scenario() if isinstance(data, ToolCallEnd | ToolCallError)]
    assert isinstance(ended, ToolCallError)
    assert "private place" in ended.content


async def test_searches_skip_private_places_and_name_them(tmp_path: Path, home: Path) -> None:
    (home / ".config" / "app").mkdir()
    (home / ".config" / "app" / "settings").write_text("nothing special\n")
    calls = [
        ("grep", {"pattern": "."}),
        ("glob", {"pattern": "**/*"}),
        ("grep", {"pattern": ".", "path": ".config"}),
    ]
    (grepped, listed, inside), _ = await outcomes(tmp_path, home, *calls)
    for outcome in (grepped, listed, inside):
        assert isinstance(outcome, ToolCallEnd)
        assert CANARY not in outcome.content
        assert "[private places, not searched: " in outcome.content
    assert "note.txt" in grepped.content
    assert ".env.example" in listed.content
    assert "id_ed25519" not in listed.content
    assert ".config/app/settings" in inside.content
    assert ".config/gh/" in inside.content


async def test_a_search_names_only_files_in_its_scope(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / ".env").write_text(CANARY)
    (work / "a.py").write_text("x = 1\n")
    calls = [("grep", {"pattern": "x", "glob": "*.py"}), ("grep", {"pattern": "x"})]
    (of_python, of_all), _ = await outcomes(tmp_path, work, *calls)
    assert "private places" not in of_python.content
    assert "private places, not searched: .env;" in of_all.content


async def test_private_places_are_found_if_the_workspace_is_their_parent_folder(tmp_path: Path, home: Path) -> None:
    """The workspace `~/.config` holds `gh`, whose name says nothing without the folder above."""
    calls = [("read_file", {"path": "gh/hosts.yml"}), ("grep", {"pattern": "."})]
    (read, searched), _ = await outcomes(tmp_path, home / ".config", *calls)
    assert CANARY not in read.content + searched.content
    assert "gh/" in searched.content


async def test_paths_named_in_the_settings_are_read_without_approval(tmp_path: Path, home: Path) -> None:
    calls = [("read_file", {"path": ".npmrc"}), ("read_file", {"path": ".netrc"})]
    named = {"readable": [str(home / ".npmrc"), str(home)]}  # the home as a whole names nothing
    ended, asked = await outcomes(tmp_path, home, *calls, sandbox=named)
    assert asked == []
    assert [isinstance(outcome, ToolCallEnd) for outcome in ended] == [True, False]


def test_similar_files_without_secrets_are_not_private(tmp_path: Path) -> None:
    for path in (
        "/w/.env.example",
        "/w/id_rsa.pub",
        "/w/keys.py",
        "/w/.docker/Dockerfile",
        "/w/src/env.ts",
        "/",
        "/w",
    ):
        assert find_private_place(path) is None, path
        assert classify_name(path.rpartition("/")[2], path) is None, path


def test_private_places_are_recognised_in_upper_and_lower_case() -> None:
    for place in CREDENTIALS:
        for path in (f"/home/u/{place}", f"/w/copy/{place.upper()}", f"/home/u/{place}/below"):
            assert find_private_place(path) is not None, path
    assert all(place == place.casefold() and find_private_place(place) is not None for place in SYSTEM)


# ── The sandbox ──


@needs_bubblewrap
async def test_commands_in_the_sandbox_do_not_see_private_places(home: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "shown"
    (elsewhere / ".aws").mkdir(parents=True)
    (elsewhere / ".aws" / "credentials").write_text(CANARY)
    (elsewhere / "open").write_text("open\n")
    look = f"grep -rs {CANARY} . '{elsewhere}'; cat '{elsewhere}/open'"

    async def run(policy: SandboxPolicy) -> str:
        commands = ShellCommands()
        try:
            return (await commands.run(Command(look, home, policy), lambda text: None)).output
        finally:
            commands.close()

    of_project = {f"./{name}:{CANARY}" for name in ("project/.env.local", "project/server.pem", "id_rsa", "hard")}
    seen = set((await run(SandboxPolicy("required", readable=(str(elsewhere),)))).splitlines())
    assert "open" in seen
    assert seen - {"open"} <= of_project, "only what lies in projects, and a hard link, which cannot be told apart"
    named = SandboxPolicy("required", readable=(str(elsewhere), str(home / ".aws")))
    assert f"./.aws/credentials:{CANARY}" in await run(named)
