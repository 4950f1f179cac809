"""Agents and skills that processes with homes of their own share in the database."""

import asyncio
from collections.abc import Callable
from pathlib import Path

from tests.operations.test_agent_versions import opened, write
from tests.patience import HANG_SECONDS
from treadle.config.home import Home
from treadle.operations import agents
from treadle.operations.operation import LocalCaller
from treadle.operations.skills import APPROVE, ApproveSkill

SHARED = "storage: {agents: database, skills: database}\n"
SKILL = "---\nname: tidy\ndescription: Tidy up.\n---\n\nTidy everything.\n"


def make_home(folder: Path) -> Home:
    folder.mkdir()
    (folder / "config.yaml").write_text(SHARED)
    return Home(folder)


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(HANG_SECONDS):
        while not condition():  # noqa: ASYNC110 -- files change, which no event reports
            await asyncio.sleep(0.01)


async def test_a_change_in_one_home_reaches_the_other(url: str, tmp_path: Path) -> None:
    here, there = make_home(tmp_path / "here"), make_home(tmp_path / "there")
    write(here, "one")
    async with opened(url, here) as first, opened(url, there) as second:
        assert there.agent("ada").persona == "one", "a home without agents has them when it opens"
        write(there, "two, by hand")
        await until(lambda: here.agent("ada").persona == "two, by hand")
        settings = {"name": "ada", "model": "fake/m", "persona": "three"}
        await LocalCaller(first.context).call(agents.CHANGE, agents.ChangeAgent("ada", settings))
        await until(lambda: there.agent("ada").persona == "three")
        await LocalCaller(second.context).call(agents.DELETE, agents.OneAgent("ada"))
        await until(lambda: "ada" not in here.agents())
        write(here, "while the other is closed", "bob")
        await until(lambda: "bob" in there.agents())
    write(there, "changed while nothing runs", "bob")
    async with opened(url, there), opened(url, here):
        assert here.agent("bob").persona == "changed while nothing runs"


async def test_an_approved_skill_reaches_the_other_home(url: str, tmp_path: Path) -> None:
    here, there = make_home(tmp_path / "here"), make_home(tmp_path / "there")
    folder = here.path / "skills" / "tidy"
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(SKILL)
    async with opened(url, here) as first, opened(url, there) as second:
        sha256 = first.context.skills.show("tidy").sha256
        await LocalCaller(first.context).call(APPROVE, ApproveSkill("tidy", sha256))
        await until(lambda: any(each.name == "tidy" for each in second.context.skills.list()))
        assert second.context.skills.show("tidy").state == "approved"
        second.context.skills.revoke("tidy")
        await until(lambda: first.context.skills.show("tidy").state == "new")
