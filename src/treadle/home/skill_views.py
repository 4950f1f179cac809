"""The skills of a home: their approvals, and how clients see them."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from treadle.domain.errors import UnknownSkill, UsageError
from treadle.operations.skill_approvals import SkillDetail, SkillFileView, SkillView
from treadle.skills.content import SkillContent, SkillFile
from treadle.skills.inventory import FoundSkill, SkillInventory
from treadle.skills.locations import Origin

ORIGINS: dict[Origin, Literal["home", "workspace", "treadle"]] = {
    "home": "home",
    "workspace": "workspace",
    "shipped": "treadle",
}
ACTING = {"write": "can write", "external": "can run programs or act outside"}
"""What a tool can do, by its effect. Other tools only read."""


class HomeSkills:
    """Implements `operations.skill_approvals.SkillApprovals`."""

    def __init__(self, home: Path) -> None:
        self._home = home

    def list(self) -> Sequence[SkillView]:
        found = self._inventory.survey(self._home).found
        return [make_skill_view(each) for each in found if each.origin != "workspace"]

    def show(self, name: str) -> SkillDetail:
        return make_skill_detail(*self._inventory.find(name))

    def approve(self, name: str, sha256: str) -> SkillView:
        found, content = self._inventory.find(name)
        if content is None or found.state == "broken":
            raise UsageError(f"The skill `{name}` cannot be approved: {found.reason}. Fix it first.")
        if content.sha256 != sha256:
            raise UsageError(
                f"The skill `{name}` has changed since it was read: its content has the sha256 {content.sha256}. "
                "Nothing was approved. Read it again."
            )
        return make_skill_view(self._inventory.approve(found, content))

    def revoke(self, name: str) -> None:
        if not self._inventory.revoke(name):
            raise UnknownSkill(f"The skill {name!a} is not approved. Nothing was changed.")

    @property
    def _inventory(self) -> SkillInventory:
        return SkillInventory(self._home)


def make_skill_view(found: FoundSkill) -> SkillView:
    """Return a skill with the tools that a run gets. As in the engine, a tool is found by its exact name."""
    known = _list_known_tools() if found.tools else {}
    return SkillView(
        found.name,
        ORIGINS[found.origin],
        found.state,
        found.description,
        found.reason,
        path=found.path,
        tools=tuple([name for name in found.tools if name in known]),
        acting_tools=tuple(describe_acting_tools(found)),
        unknown_tools=tuple([name for name in found.tools if name not in known]),
        asks_for=found.asks_for,
        sha256=found.sha256,
    )


def make_skill_detail(found: FoundSkill, content: SkillContent | None) -> SkillDetail:
    """Return a skill with its files."""
    files = () if content is None else tuple(map(_make_file_view, content.files))
    return SkillDetail(**msgspec.structs.asdict(make_skill_view(found)), files=files)


def describe_acting_tools(found: FoundSkill) -> dict[str, str]:
    """Return the tools of a skill that do more than read, each with what it can do."""
    known = _list_known_tools() if found.tools else {}
    return {name: ACTING[known[name]] for name in found.tools if known.get(name) in ACTING}


def read_skill_text(file: SkillFile) -> str | None:
    """Return the text of a file, or None if it is not text."""
    try:
        return None if b"\0" in file.content else file.content.decode()
    except UnicodeDecodeError:
        return None


def _make_file_view(file: SkillFile) -> SkillFileView:
    return SkillFileView(file.path, len(file.content), file.executable, read_skill_text(file))


def _list_known_tools() -> dict[str, str]:
    """Return the effects of the tools of this home, by name."""
    from treadle.home.tool_names import list_known_tools  # heavy, and most skills request no tools

    return {name: spec.effect for name, spec in list_known_tools().items()}
