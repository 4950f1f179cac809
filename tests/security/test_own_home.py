"""The engine's own home is out of reach of every tool, also where the workspace is the user's home around it."""

import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.engine.running import agent, journal, opened
from treadle.api.engine import create_engine
from treadle.domain.events import ToolCallEnd, ToolCallError
from treadle.testing.models import ScriptedModel, ask, call, say
from treadle.vault.store import SecretGrant, VaultStore

ATTEMPTS: list[tuple[str, dict[str, Any]]] = [
    ("read_file", {"path": ".treadle/vault.key"}),
    ("read_file", {"path": "./x/../.treadle/vault.key"}),
    ("read_file", {"path": "link/vault.key"}),
    (
        "write_file",
        {"path": ".treadle/agents/default/allowed.yaml", "content": "allowed: [{tool: bash, do: auto}]"},
    ),
    ("write_file", {"path": "link/config.yaml", "content": "x"}),
    ("edit_file", {"path": ".treadle/config.yaml", "old": "a", "new": "b"}),
    ("glob", {"pattern": "*", "path": ".treadle"}),
    ("grep", {"pattern": ".", "path": ".treadle"}),
    ("grep", {"pattern": ".", "path": "link"}),
]


@pytest.fixture
def user_home(tmp_path: Path) -> Path:
    folder = tmp_path / "user"
    (folder / "x").mkdir(parents=True)
    (folder / "note.txt").write_text("hello\n")
    with closing(VaultStore(folder / ".treadle", {})) as vault:
        vault.put("TOKEN", "sk-live-0123456789", (SecretGrant("hero"),))
    (folder / ".treadle" / "config.yaml").write_text("{}  # a")
    (folder / "link").symlink_to(".treadle")
    return folder


async def outcomes(folder: Path, user_home: Path, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    steps = [ask(call(name, f"c{n}", **arguments)) for n, (name, arguments) in enumerate(calls)]

    async with opened(folder, ScriptedModel(*steps, say("done")), home=user_home / ".treadle") as engine:
        hero = agent(tools=["@files"], workspace=user_home, limits={"max_steps": 50})
        result = await engine.run(hero, "go")
        events = [event.data for event in await journal(engine, result.run_id)]
    return [data for data in events if isinstance(data, ToolCallEnd | ToolCallError)]


async def test_no_tool_reads_or_changes_the_engines_home(tmp_path: Path, user_home: Path) -> None:
    before = {path: path.read_bytes() for path in (user_home / ".treadle").rglob("*") if path.is_file()}
    for attempt, outcome in zip(ATTEMPTS, await outcomes(tmp_path, user_home, *ATTEMPTS), strict=True):
        assert isinstance(outcome, ToolCallError), attempt
        assert "Treadle's own" in outcome.content, attempt
    assert {path: path.read_bytes() for path in (user_home / ".treadle").rglob("*") if path.is_file()} == before


async def test_a_search_skips_the_engines_home(tmp_path: Path, user_home: Path) -> None:
    found, listed = await outcomes(tmp_path, user_home, ("grep", {"pattern": "."}), ("glob", {"pattern": "**/*"}))
    assert "note.txt" in found.content
    assert "vault" not in found.content + listed.content


async def test_the_homes_own_workspaces_can_be_used(tmp_path: Path, user_home: Path) -> None:
    model = ScriptedModel(ask(call("write_file", "c1", path="a.txt", content="x")), say("done"))

    async with opened(tmp_path, model, home=user_home / ".treadle") as engine:
        await engine.run(agent(tools=["@files"]), "go")
    assert (user_home / ".treadle" / "workspaces" / "hero" / "a.txt").read_text() == "x"


@pytest.mark.parametrize("tool", ["read_file", "grep"])
async def test_a_truncated_line_contains_no_part_of_a_secret(tmp_path: Path, user_home: Path, tool: str) -> None:
    value = "sk-live-0123456789"
    (user_home / "long.txt").write_text("k=" + f"{value} " * 900 + "\n")
    arguments: dict[str, Any] = {"path": "long.txt"} if tool == "read_file" else {"pattern": "k="}
    for shift in range(0, 20, 3):
        (user_home / "long.txt").write_text("k=" + "z" * shift + f"{value} " * 900 + "\n")
        folder = tmp_path / str(shift)
        folder.mkdir()
        [outcome] = await outcomes(folder, user_home, (tool, arguments))
        assert isinstance(outcome, ToolCallEnd)
        longest = max((n for n in range(1, len(value)) if value[:n] in outcome.content), default=0)
        assert longest <= 3, outcome.content[-200:]


async def test_the_database_is_for_its_owner_alone(tmp_path: Path) -> None:
    modes: dict[str, int] = {}

    def look() -> None:
        modes.update({path.name: path.stat().st_mode & 0o077 for path in tmp_path.glob("t.db*")})

    async with create_engine(f"sqlite:///{tmp_path}/t.db"):
        look()
    assert {"t.db", "t.db-wal"} <= set(modes)
    assert not any(mode for name, mode in modes.items() if name.startswith("t.db") and "lock" not in name), modes


async def test_no_tool_reads_or_changes_a_database_in_the_workspace(tmp_path: Path) -> None:
    """Also the sandboxed shell, where there is a sandbox; elsewhere it is not confined at all, and says so."""
    calls = [
        ask(call("read_file", "c1", path="t.db")),
        ask(call("write_file", "c2", path="t.db-wal", content="x")),
        ask(call("glob", "c3", pattern="*")),
        ask(call("bash", "c4", command="wc -c < t.db")),
    ]

    async def scenario() -> list[Any]:
        async with opened(tmp_path, ScriptedModel(*calls, say("done")), home=tmp_path / "home") as engine:
            hero = agent(tools=["@files", "bash"], workspace=tmp_path, limits={"max_steps": 50})
            result = await engine.run(hero, "go")
            return [event.data for event in await journal(engine, result.run_id)]

    ended = [data for data in await scenario() if isinstance(data, ToolCallEnd | ToolCallError)]
    assert [isinstance(each, ToolCallError) for each in ended[:2]] == [True, True]
    assert all("Treadle's own" in each.content for each in ended[:2])
    assert "t.db" not in ended[2].content
    if shutil.which("bwrap"):
        assert "Permission denied" in ended[3].content or ended[3].content.strip().endswith("0")
