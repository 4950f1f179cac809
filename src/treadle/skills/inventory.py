"""The skills of a home, of a workspace and of Treadle itself, as users view, approve and remove them."""

import os
import shutil
import tempfile
from collections.abc import Callable, Generator, Sequence
from contextlib import suppress
from functools import partial
from heapq import nsmallest
from pathlib import Path
from typing import Literal, TypeVar

import msgspec
from msgspec import Struct

from treadle.domain.errors import ConfigError, UnknownSkill, UsageError
from treadle.domain.inert_text import make_one_line
from treadle.domain.suggestions import find_closest
from treadle.skills.approvals import HOME, Approval, ApprovedSkills
from treadle.skills.content import SkillContent, SkillFile, read_content
from treadle.skills.locations import (
    Origin,
    SkillLocation,
    locate_home_skills,
    locate_shipped_skills,
    locate_workspace_skills,
    make_printable,
)
from treadle.skills.manifest import InvalidSkill, find_name_error, parse_manifest

State = Literal["approved", "changed", "new", "available", "broken", "missing"]
"""available: it comes with Treadle, and approving it copies it into the home. missing: it is approved, but its
folder is gone."""
Deleted = Literal["folder", "link"]
MAX_SKILLS = 200
"""Skills of one location that are read."""
_Answer = TypeVar("_Answer")


class FoundSkill(Struct, frozen=True):
    """A skill, or a folder that should be one."""

    name: str
    origin: Origin
    path: str
    state: State
    reason: str = ""
    """Why it is broken."""
    description: str = ""
    tools: tuple[str, ...] = ()
    """The tools that it provides."""
    asks_for: tuple[str, ...] = ()
    """The tools that it names. A skill of a workspace gets none of them."""
    sha256: str = ""


class SkillSurvey(Struct, frozen=True):
    found: tuple[FoundSkill, ...]
    left_out: int = 0
    """Folders that were skipped because there are too many."""


class SkillInventory:
    """Lists, approves and removes skills."""

    def __init__(self, home: Path) -> None:
        self._home = locate_home_skills(home)
        self._approved = ApprovedSkills(home)

    def survey(self, workspace: Path) -> SkillSurvey:
        """Return every skill of the home, of this workspace and of Treadle. An invalid skill is reported, not
        raised."""
        found: list[FoundSkill] = []
        left_out = 0
        for place in (self._home, locate_workspace_skills(workspace)):
            try:
                names, more = _list_names(place)
            except InvalidSkill as error:
                name = "/".join(place.names)
                found.append(FoundSkill(name, place.kind, place.render_path(), "broken", str(error)))
                continue
            left_out += more
            found += [self._inspect(place, name)[0] for name in names]
            found += self._find_missing(place)
        in_the_home = {one.name for one in found if one.origin == "home" and one.state != "missing"}
        shipped = locate_shipped_skills()
        found += [self._inspect(shipped, name)[0] for name in _list_names(shipped)[0] if name not in in_the_home]
        return SkillSurvey(tuple(found), left_out)

    def find(self, name: str, workspace: Path | None = None) -> tuple[FoundSkill, SkillContent | None]:
        """Return the skill of this name with its files, which are None if they cannot be read.

        It is looked up in the workspace if one is given, otherwise in the home and in Treadle. Raise UnknownSkill
        if there is none."""
        places = (
            (self._home, locate_shipped_skills()) if workspace is None else (locate_workspace_skills(workspace),)
        )
        if find_name_error(name) is None:
            for place in places:
                if _exists(place, name):
                    return self._inspect(place, name)
        raise UnknownSkill(self._describe_unknown(name, places))

    def approve(self, found: FoundSkill, content: SkillContent) -> FoundSkill:
        """Approve a skill with exactly this content. A skill of Treadle is first copied into the home."""
        if found.state == "broken":
            raise UsageError(f"The skill `{found.name}` cannot be approved: {found.reason}. Fix it first.")
        if found.origin == "shipped":
            self.write(found.name, content.files)
            path = self._home.render_path(found.name)
            found = msgspec.structs.replace(found, origin="home", path=path)
        origin = HOME if found.origin == "home" else found.path
        self._approved.put(Approval(found.name, origin, content.sha256))
        return msgspec.structs.replace(found, state="approved")

    def revoke(self, name: str, workspace: Path | None = None) -> bool:
        """Revoke an approval. Return False if there was none."""
        place = self._home if workspace is None else locate_workspace_skills(workspace)
        return self._approved.revoke(name, place.origin(name))

    def delete(self, name: str) -> Deleted:
        """Delete the folder of a skill of the home, and its approval. If it is a link, only the link is deleted."""
        path = self._home.path / name
        if (wrong := find_name_error(name)) is not None:
            raise UsageError(f"This is not a valid skill name: {wrong}.")
        if not _exists(self._home, name):
            raise UnknownSkill(f"There is no skill `{name}` in {self._home.path}. Nothing was deleted.")
        is_link = path.is_symlink()
        if not is_link and not path.is_dir():
            raise UsageError(
                f"{path} is not a skill: it is a file, and a skill is a folder. Nothing was deleted. "
                "Delete the file yourself if it is not needed."
            )
        self.revoke(name)
        _report_errors(path, path.unlink if is_link else lambda: shutil.rmtree(path))
        return "link" if is_link else "folder"

    # ── Looking ──

    def _inspect(self, place: SkillLocation, name: str) -> tuple[FoundSkill, SkillContent | None]:
        path = place.render_path(name)
        content = None
        try:
            with place.open() as folder:
                content = read_content(name, folder)
            said = parse_manifest(content.instructions.content, name)
        except (OSError, InvalidSkill) as error:
            reason = str(error) if isinstance(error, InvalidSkill) else f"it cannot be read: {error.strerror}"
            return FoundSkill(make_printable(name), place.kind, path, "broken", make_one_line(reason)), content
        state = self._find_state(place, name, content)
        tools = () if place.kind == "workspace" else said.tools
        return (
            FoundSkill(
                name=name,
                origin=place.kind,
                path=path,
                state=state,
                reason="",
                description=said.description,
                tools=tools,
                asks_for=said.tools,
                sha256=content.sha256,
            ),
            content,
        )

    def _find_state(self, place: SkillLocation, name: str, content: SkillContent) -> State:
        if place.kind == "shipped":
            return "available"
        origin = place.origin(name)
        known = [one for one in self._approved.read() if (one.name, one.origin) == (name, origin)]
        if not known:
            return "new"
        return "approved" if known[0].sha256 == content.sha256 else "changed"

    def _find_missing(self, place: SkillLocation) -> Generator[FoundSkill]:
        """Yield approved skills whose folder is gone."""
        for one in self._approved.read():
            if one.origin == place.origin(one.name) and not _exists(place, one.name):
                path = place.render_path(one.name)
                yield FoundSkill(one.name, place.kind, path, "missing", "its folder is gone", sha256=one.sha256)

    def _describe_unknown(self, name: str, places: Sequence[SkillLocation]) -> str:
        known: list[str] = []
        for place in places:
            with suppress(InvalidSkill):
                known += _list_names(place)[0]
        near = find_closest(name, known)
        where = " or ".join(str(place.path) for place in places if place.kind != "shipped")
        meant = f"Did you mean `{near}`?" if near else "`treadle skills list` shows what is there."
        return f"There is no skill {name[:100]!a} in {where}. {meant}"

    # ── Copying ──

    def write(self, name: str, files: Sequence[SkillFile]) -> None:
        """Write a new skill of the home: all files or none."""
        folder = self._home.path
        _report_errors(folder, self._approved.make_folder)
        made = Path(_report_errors(folder, lambda: tempfile.mkdtemp(dir=folder, prefix=f".{name}.")))
        try:
            for file in files:
                _report_errors(made, partial(_write_file, made / file.path, file))
            _report_errors(folder / name, lambda: made.rename(folder / name))
        except BaseException:
            with suppress(OSError):
                shutil.rmtree(made)
            raise


def _list_names(place: SkillLocation) -> tuple[list[str], int]:
    """Return the folders of a location that may be skills, sorted, and how many more there are. Raise
    InvalidSkill."""
    try:
        with place.open() as folder, os.scandir(folder) as listed:
            every = [entry.name for entry in listed if _may_be_a_skill(entry)]
    except (FileNotFoundError, NotADirectoryError):
        return [], 0
    except OSError as error:
        raise InvalidSkill(f"it cannot be read: {error.strerror}") from None
    first = nsmallest(MAX_SKILLS, every)
    return first, len(every) - len(first)


def _may_be_a_skill(entry: "os.DirEntry[str]") -> bool:
    return not entry.name.startswith(".") and not entry.is_file(follow_symlinks=False)


def _exists(place: SkillLocation, name: str) -> bool:
    try:
        with place.open() as folder:
            os.stat(name, dir_fd=folder, follow_symlinks=False)
    except (OSError, InvalidSkill):
        return False
    return True


# ── Writing ──


def _report_errors(path: Path, write: Callable[[], _Answer]) -> _Answer:
    try:
        return write()
    except OSError as error:
        raise ConfigError(
            f"{path}: it cannot be changed: {error.strerror or error}; check its permissions"
        ) from None


def _write_file(path: Path, file: SkillFile) -> None:
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    path.write_bytes(file.content)
    path.chmod(0o700 if file.executable else 0o600)
