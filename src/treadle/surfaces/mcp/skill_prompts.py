"""Approved skills of a home as prompts."""

from collections.abc import Sequence
from functools import partial
from pathlib import Path

from treadle.skills.run_skills import FolderSkills
from treadle.surfaces.mcp.backend import SkillPrompt


def list_skill_prompts(home: Path) -> Sequence[SkillPrompt]:
    """Return the approved skills of the home. Those of workspaces are not included."""
    skills, nowhere = FolderSkills(home), home / "workspaces"
    found = skills.list_offered(("*",), nowhere)
    return [
        SkillPrompt(skill.name, skill.description, partial(skills.load, skill.name, ("*",), nowhere))
        for skill in found
    ]
