"""Versions of agents: what is recorded, restored and labelled, and which one a run names."""

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tests.stores.postgres.servers import Databases, shared
from treadle.api.engine import HostedEngine, create_engine
from treadle.config.home import Home
from treadle.domain.errors import InvalidState, UsageError
from treadle.operations import agent_versions, agents, runs
from treadle.operations.operation import LocalCaller
from treadle.testing.models import ScriptedModel, say
from treadle.vault.secret_files import SecretFiles

SQLITE = "sqlite"
TEXT = "name: ada\nmodel: fake/m\npersona: {persona}\n"


@pytest.fixture(params=[SQLITE, "postgres"])
def database(request: pytest.FixtureRequest, tmp_path: Path, testrun_uid: str):
    if request.param == SQLITE:
        yield f"sqlite:///{tmp_path / 'treadle.db'}"
        return
    databases: Databases = shared(testrun_uid)
    with databases.one() as url:
        yield url


def write(home: Home, persona: str, name: str = "ada") -> Path:
    file = home.path / "agents" / name / "config.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(TEXT.format(persona=persona).replace("ada", name))
    return file


@asynccontextmanager
async def opened(database: str, home: Home) -> AsyncGenerator[HostedEngine]:
    engine = create_engine(database, home=home)
    engine.add_model("fake", ScriptedModel(*[say("Yes.")] * 9))
    async with engine:
        yield engine


async def run(engine: HostedEngine, agent: str) -> tuple[int | None, str]:
    """Return the version and the persona of a run."""
    ended = await engine.run(agent, "hello")
    view = await LocalCaller(engine.context).call(runs.SHOW, runs.ShowRun(ended.run_id))
    return view.version, (await engine.service.agent_of(ended.run_id)).persona


async def test_every_change_is_a_version_and_runs_name_theirs(database: str, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    write(home, "one")
    async with opened(database, home) as engine:
        caller = LocalCaller(engine.context)
        assert await run(engine, "ada") == (1, "one")
        write(home, "two, by hand")
        settings = {"name": "ada", "model": "fake/m", "persona": "three"}
        await caller.call(agents.CHANGE, agents.ChangeAgent("ada", settings))
        await caller.call(agent_versions.LABEL, agent_versions.SetLabel("ada", "candidate", "current"))
        assert await run(engine, "ada") == (3, "three")
        assert await run(engine, "ada@2") == (2, "two, by hand")
        restored = await caller.call(agent_versions.RESTORE, agent_versions.OneVersion("ada", "1"))
        assert (restored.number, restored.restored, restored.author) == (4, 1, "the owner of the home")
        assert await run(engine, "ada") == (4, "one")
        assert await run(engine, "ada@candidate") == (3, "three")
        found = await caller.call(agent_versions.HISTORY, agent_versions.ListVersions("ada"))
        assert [(each.number, each.origin, each.labels) for each in found.items] == [
            (4, "restore", ()),
            (3, "api", ("candidate",)),
            (2, "file", ()),
            (1, "file", ()),
        ]
        diff = await caller.call(agent_versions.DIFF, agent_versions.CompareVersions("ada", "candidate"))
        assert (diff.before, diff.after) == (2, 3)
        assert "-persona: two, by hand\n+persona: three\n" in diff.diff
        with pytest.raises(UsageError, match=r"no label `candidat`\. Did you mean `candidate`"):
            await run(engine, "ada@candidat")
        with pytest.raises(UsageError, match=r"no version 9\. It has versions 1 to 4"):
            await run(engine, "ada@9")
        await caller.call(agents.DELETE, agents.OneAgent("ada"))
        await caller.call(agent_versions.RESTORE, agent_versions.OneVersion("ada", "2"))
        assert await run(engine, "ada") == (6, "two, by hand")
    async with opened(database, home) as engine:
        assert await run(engine, "ada") == (6, "two, by hand")


async def test_secrets_are_in_no_version(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.ensure()
    SecretFiles(home.path, {}).put("DOOR", "correcthorsebattery", (), forced=True)
    file = write(home, "say correcthorsebattery")
    async with opened(f"sqlite:///{tmp_path / 'treadle.db'}", home) as engine:
        caller = LocalCaller(engine.context)
        assert (await run(engine, "ada"))[0] == 1
        shown = await caller.call(agent_versions.VERSION, agent_versions.OneVersion("ada", "1"))
        assert "correcthorsebattery" not in shown.text
        with pytest.raises(InvalidState, match="contained the secret `DOOR`"):
            await caller.call(agent_versions.RESTORE, agent_versions.OneVersion("ada", "1"))
        assert "correcthorsebattery" in file.read_text()
