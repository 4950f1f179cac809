"""Where skills are: `skills` of the home, `.agents/skills` of a workspace, and those that come with Treadle."""

import os
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal

from msgspec import Struct

from treadle.domain.inert_text import has_hidden
from treadle.skills.approvals import HOME
from treadle.skills.content import open_folder

Origin = Literal["home", "workspace", "shipped"]
WORKSPACE_FOLDER = (".agents", "skills")


class SkillLocation(Struct, frozen=True):
    """A folder with one subfolder per skill. Links below `root` are not followed."""

    kind: Origin
    root: Path
    names: tuple[str, ...] = ()

    @property
    def path(self) -> Path:
        return self.root.joinpath(*self.names)

    def origin(self, skill: str) -> str:
        """Return the origin under which the approval of a skill is stored."""
        return HOME if self.kind == "home" else self.render_path(skill)

    def render_path(self, skill: str = "") -> str:
        """Return the path of a skill as printable text."""
        return make_printable(str(self.path / skill))

    @contextmanager
    def open(self) -> Generator[int]:
        """Open the folder. Raise OSError if it does not exist, and InvalidSkill if it is a link or not a folder."""
        with open_folder(self.root, *self.names) as folder:
            yield folder


def locate_home_skills(home: Path) -> SkillLocation:
    return SkillLocation("home", home / "skills")


def locate_workspace_skills(workspace: Path) -> SkillLocation:
    return SkillLocation("workspace", Path(os.path.realpath(workspace)), WORKSPACE_FOLDER)


def locate_shipped_skills() -> SkillLocation:
    return SkillLocation("shipped", Path(__file__).parent / "shipped")


def make_printable(name: str) -> str:
    """Return the name, escaped if it has invisible characters or is not UTF-8."""
    return name if name.isprintable() and not has_hidden(name) else ascii(name)[1:-1]
