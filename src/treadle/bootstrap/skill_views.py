"""Skills as clients see them: over HTTP and in the output of `treadle skills`."""

from typing import Literal

import msgspec

from treadle.operations.skill_approvals import SkillDetail, SkillFileView, SkillView
from treadle.skills.content import SkillContent, SkillFile
from treadle.skills.inventory import FoundSkill
from treadle.skills.locations import Origin

ORIGINS: dict[Origin, Literal["home", "workspace", "treadle"]] = {
    "home": "home",
    "workspace": "workspace",
    "shipped": "treadle",
}
ACTING = {"write": "can write", "external": "can run programs or act outside"}
"""What a tool can do, by its effect. Other tools only read."""


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
    from treadle.bootstrap.tool_names import list_known_tools  # heavy, and most skills request no tools

    return {name: spec.effect for name, spec in list_known_tools().items()}
