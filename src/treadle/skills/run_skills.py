"""The skills that are offered to a run: approved by a user, and unchanged since.

Only approved skills are read, by name. Other folders in a workspace cost nothing and are never read."""

from collections.abc import Generator, Sequence
from contextlib import ExitStack, suppress
from fnmatch import fnmatchcase
from pathlib import Path
from typing import NamedTuple

from treadle.domain.suggestions import find_closest
from treadle.ports.skills import Skill
from treadle.skills.approvals import Approval, ApprovedSkills
from treadle.skills.content import SkillContent, SkillFile, read_content
from treadle.skills.locations import SkillLocation, locate_home_skills, locate_workspace_skills
from treadle.skills.manifest import InvalidSkill, SkillManifest, is_name, parse_body, parse_manifest

_MAX_CACHED_MANIFESTS = 1000
_MAX_LIST_CHARACTERS = 4000
"""Characters of the list of a skill's files."""


class _Approved(NamedTuple):
    skill: Skill
    content: SkillContent


class FolderSkills:
    """Skills in folders; implements `ports.skills.Skills`. Thread-safe.

    Raises ConfigError if the file of approvals is damaged: continuing without an agent's skills would hide the
    problem."""

    def __init__(self, home: Path) -> None:
        self._home = locate_home_skills(home)
        self._approved = ApprovedSkills(home)
        self._manifests: dict[tuple[str, str], SkillManifest] = {}
        """By name and hash. The files themselves are read each time."""

    def list_offered(self, patterns: Sequence[str], workspace: Path) -> Sequence[Skill]:
        found: dict[str, Skill] = {}
        for place in self._list_locations(patterns, workspace):
            approvals = [one for one in self._list_approvals(place, patterns) if one.name not in found]
            for approved in self._read(place, approvals):
                if approved is not None:
                    found[approved.skill.name] = approved.skill
        return tuple(found[name] for name in sorted(found))

    def load(self, name: str, patterns: Sequence[str], workspace: Path, file: str | None = None) -> str:
        is_known = False
        for place in self._list_locations(patterns, workspace):
            approvals = [one for one in self._list_approvals(place, patterns) if one.name == name]
            for approved in self._read(place, approvals):
                is_known = True
                if approved is not None:
                    content = approved.content
                    return (
                        _render_instructions(name, place, content)
                        if file is None
                        else _read_file(name, content, file)
                    )
        if is_known:
            raise LookupError(
                f"The skill `{name}` is no longer as a person approved it, and cannot be used until they approve "
                "it again; `treadle skills list` shows them why. Go on without it, and say so."
            )
        raise LookupError(_describe_unknown(name, [skill.name for skill in self.list_offered(patterns, workspace)]))

    def _list_locations(self, patterns: Sequence[str], workspace: Path) -> Generator[SkillLocation]:
        """Yield the locations, in order of precedence."""
        if patterns:
            yield self._home
            yield locate_workspace_skills(workspace)

    def _list_approvals(self, place: SkillLocation, patterns: Sequence[str]) -> list[Approval]:
        return [
            approval
            for approval in self._approved.read()
            if any(fnmatchcase(approval.name, pattern) for pattern in patterns)
            and is_name(approval.name)
            and approval.origin == place.origin(approval.name)
        ]

    def _read(self, place: SkillLocation, approvals: Sequence[Approval]) -> Generator[_Approved | None]:
        """Yield each skill as it was approved, or None if it is missing or has changed."""
        with ExitStack() as held:
            folder = None
            with suppress(OSError, InvalidSkill):
                folder = held.enter_context(place.open()) if approvals else None
            for approval in approvals:
                yield None if folder is None else self._load_approved(place, approval, folder)

    def _load_approved(self, place: SkillLocation, approval: Approval, within: int) -> _Approved | None:
        try:
            content = read_content(approval.name, within)
            if content.sha256 != approval.sha256:
                return None
            manifest = self._manifest(approval.name, content)
        except (OSError, InvalidSkill):
            return None
        if place.kind == "home":
            return _Approved(Skill(manifest.name, manifest.description, "home", manifest.tools), content)
        return _Approved(Skill(manifest.name, manifest.description, "workspace"), content)

    def _manifest(self, name: str, content: SkillContent) -> SkillManifest:
        key = (name, content.sha256)
        known = self._manifests.get(key)
        if known is None:
            if len(self._manifests) >= _MAX_CACHED_MANIFESTS:
                self._manifests.clear()
            known = self._manifests[key] = parse_manifest(content.instructions.content, name)
        return known


# ── Text for the model ──


def _render_instructions(name: str, place: SkillLocation, content: SkillContent) -> str:
    text = parse_body(content.instructions.content) or "(This skill has no instructions beyond its description.)"
    if not content.others:
        return text
    lies = f" They lie in {'/'.join(place.names)}/{name} of the workspace." if place.kind == "workspace" else ""
    head = f'Files of this skill; load_skill(name="{name}", file="…") reads one, as it was approved.{lies}'
    return "\n".join([text, "", head, *_list_files(content.others)])


def _list_files(files: Sequence[SkillFile]) -> Generator[str]:
    room = _MAX_LIST_CHARACTERS
    for index, file in enumerate(files):
        line = f"- {file.path} ({len(file.content)} bytes{', a program' if file.executable else ''})"
        room -= len(line) + 1
        if room < 0:
            yield f"- and {len(files) - index} more"
            return
        yield line


def _read_file(name: str, content: SkillContent, path: str) -> str:
    relative = path.removeprefix("./")
    found = content.file(relative)
    if found is None:
        paths = [file.path for file in content.files]
        near = find_closest(relative, paths)
        meant = f"Did you mean {near}?" if near else f"It has: {', '.join(paths)[:_MAX_LIST_CHARACTERS]}."
        raise LookupError(f"The skill `{name}` has no file {path[:200]!a}. {meant}")
    try:
        return found.content.decode()
    except UnicodeDecodeError:
        raise LookupError(f"{relative} of the skill `{name}` is not text, so it cannot be read here.") from None


def _describe_unknown(name: str, offered: Sequence[str]) -> str:
    if not offered:
        return f"There is no skill {name[:100]!a}: no skills are offered here. Go on without one."
    near = find_closest(name, offered)
    meant = f"Did you mean `{near}`?" if near else f"Offered are: {', '.join(offered)[:_MAX_LIST_CHARACTERS]}."
    return f"There is no skill {name[:100]!a}. {meant}"
