"""Writes skills for tests."""

from pathlib import Path

from treadle.skills.inventory import FoundSkill, SkillInventory
from treadle.skills.locations import WORKSPACE_FOLDER

BODY = "# How to\n\nDo this, then that."


def skill(place: Path, name: str, front: str = "", body: str = BODY, description: str = "Does it.") -> Path:
    """Write a skill in its own folder."""
    folder = place / name
    folder.mkdir(parents=True)
    (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: {description}\n{front}---\n\n{body}\n")
    return folder


def of_home(home: Path) -> Path:
    return home / "skills"


def of_workspace(workspace: Path) -> Path:
    return workspace.joinpath(*WORKSPACE_FOLDER)


def approve(home: Path, name: str, workspace: Path | None = None) -> FoundSkill:
    shelf = SkillInventory(home)
    found, content = shelf.find(name, workspace)
    assert content is not None, found.reason
    return shelf.approve(found, content)


def looked_at(home: Path, workspace: Path) -> dict[tuple[str, str], FoundSkill]:
    """Return what `treadle skills list` shows, by origin and name, without the shipped skills."""
    found = SkillInventory(home).survey(workspace).found
    return {(one.origin, one.name): one for one in found if one.origin != "shipped"}
