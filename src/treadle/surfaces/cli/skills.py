"""`treadle skills`: what lies there, what is in it, and which of it a person has approved."""

import os
import sys
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from treadle.config.home import Home
from treadle.domain.errors import UsageError
from treadle.skills.content import SkillContent, SkillFile
from treadle.skills.inventory import FoundSkill, SkillInventory
from treadle.surfaces.cli.call_view import quoted
from treadle.surfaces.cli.event_output import note
from treadle.surfaces.cli.line_input import Prompt
from treadle.surfaces.cli.process import FAILED, Stop
from treadle.surfaces.cli.tables import print_table
from treadle.surfaces.cli.terminal import print_json, revealed_line, size_of

_ORIGINS = {"home": "home", "workspace": "workspace", "shipped": "treadle"}
_STATES = {"changed": "changed since"}
_UNBROKEN = 100_000
"""The width of lines that go into a file or a pipe."""
_LEAST_OF_A_HASH = 12
_ACTS = {"write": "can write", "external": "can run something or act outside"}
"""By the effect of a tool."""


class Brought(Struct, frozen=True):
    """What the tools that a skill names come to here."""

    tools: tuple[str, ...] = ()
    """They come with the skill."""
    acting: dict[str, str] = {}
    """Those of them that do more than look, with what they can do."""
    unknown: tuple[str, ...] = ()
    """Names that no tool here has: they bring nothing."""


async def list_skills(workspace: str, json: bool) -> int:
    survey = _shelf().survey(_folder(workspace))
    if json:
        for found in survey.found:
            _print_json(_row(found))
    else:
        head = ("SKILL", "ORIGIN", "STATE", "TOOLS", "WHAT IT IS")
        print_table(head, [_cells(found) for found in survey.found])
        brought = [_brought(found) for found in survey.found]
        if any(each.acting for each in brought):
            note("! marks tools that can write, run something or act outside")
        if any(each.unknown for each in brought):
            note("? marks names that no tool here has: they bring nothing")
    if survey.left_out:
        note(f"{survey.left_out} more are not shown: there are too many in one place")
    return 0


async def show_skill(name: str, workspace: str | None, json: bool) -> int:
    found, content = _shelf().find(name, _chosen(workspace))
    if json:
        files = [] if content is None else [_file_row(file) for file in content.files]
        _print_json({**_row(found), "files": files})
        return 0
    width = size_of(sys.stdout).columns if sys.stdout.isatty() else _UNBROKEN
    for line in _whole(found, content, width):
        print(line)
    return 0


async def approve_skill(name: str, workspace: str | None, yes: bool, sha256: str | None, json: bool) -> int:
    shelf = _shelf()
    found, content = shelf.find(name, _chosen(workspace))
    if content is None or found.state == "broken":
        raise UsageError(f"The skill `{name}` cannot be approved: {found.reason}. Mend it first.")
    if sha256 is not None:
        _refuse_another(found, content, sha256)
    if found.state != "approved" and not yes:
        if not Prompt.is_possible():
            raise UsageError(
                f"Nobody is here to be asked about the skill `{name}`. Read it with `{_command('show', found)}`, "
                "then approve it with --yes --sha256 and the hash that is shown there."
            )
        if not await _is_wanted(found, content):
            note(f"{name} is not approved; nothing was changed")
            return FAILED
    approved = shelf.approve(found, content)  # just what was shown, whatever lies there by now
    if json:
        _print_json(_row(approved))
    else:
        note(f"{name} is approved as it is, {approved.path}; {_brings(approved)}")
        for line in _warnings(approved):
            note(line)
        note(f"let an agent use it with `skills: [{name}]` in its file")
    return 0


async def remove_skill(name: str, workspace: str | None, delete: bool, json: bool) -> int:
    shelf = _shelf()
    if delete and workspace is not None:
        raise UsageError("Only a skill of the home is deleted. One of a workspace is yours to delete.")
    place = None if workspace is None else _path(workspace)  # it may be gone by now
    gone = shelf.delete(name) if delete else None
    if gone is None and not shelf.withdraw(name, place):
        raise UsageError(f"The skill {name!a} is not approved there. `treadle skills list` shows which are.")
    if json:
        _print_json({"name": name, "removed": True, "deleted": delete})
    else:
        deleted = {"folder": ", and its folder is deleted", "link": "; it was a link, and only the link is deleted"}
        note(f"{name} is no longer approved{deleted[gone] if gone else ''}")
    return 0


def _shelf() -> SkillInventory:
    return SkillInventory(Home.from_environment(os.environ).path)


def _chosen(workspace: str | None) -> Path | None:
    return None if workspace is None else _folder(workspace)


def _folder(workspace: str) -> Path:
    path = _path(workspace)
    if not path.is_dir():
        raise UsageError(f"The workspace {workspace!a} is no folder. Name one with --workspace PATH.")
    return path


def _path(workspace: str) -> Path:
    try:
        return Path(workspace).expanduser()
    except RuntimeError as error:
        raise UsageError(f"The workspace {workspace!a} cannot be found: {error}.") from None


async def _is_wanted(found: FoundSkill, content: SkillContent) -> bool:
    for line in _whole(found, content, size_of(sys.stderr).columns):
        print(line, file=sys.stderr, flush=True)
    with Stop() as stop:
        typed = await Prompt(stop).ask(f"Let agents use the skill {found.name} as it is? [y/N]")
        if stop.is_heard:
            raise KeyboardInterrupt
    return (typed or "").lower() in ("y", "yes")


# ── A skill, whole ──


def _whole(found: FoundSkill, content: SkillContent | None, width: int) -> Generator[str]:
    """All that somebody must see before they approve it. What is in its files has a margin, so that
    nothing of it can pass for a line of Treadle's own."""
    yield f"skill    {revealed_line(found.name)}"
    yield f"from     {_ORIGINS[found.origin]}: {revealed_line(found.path)}"
    yield f"state    {_state(found)}{f': {revealed_line(found.reason)}' if found.reason else ''}"
    yield f"tools    {_brings(found)}"
    for line in _warnings(found):
        yield f"warning  {line}"
    yield f"says     {revealed_line(found.description)}"
    if content is None:
        return
    yield f"sha256   {content.sha256}"
    yield f"files    {len(content.files)}"
    for file in content.files:
        yield ""
        yield f"{revealed_line(file.path)}, {len(file.content)} bytes{', a program' if file.executable else ''}"
        text = _text(file)
        if text is None:
            yield "  (it is not text, and is not shown)"
        else:
            yield from quoted(text, width)


# ── Its tools ──


def _brought(found: FoundSkill) -> Brought:
    """What a run gets of the tools that a skill names: the rule is the engine's, a tool comes by its exact name."""
    if not found.tools:
        return Brought()
    from treadle.bootstrap.tool_names import list_known_tools  # it knows many things, and most skills name no tools

    known = list_known_tools()
    tools = tuple([name for name in found.tools if name in known])
    acting = {name: _ACTS[known[name].effect] for name in tools if known[name].effect in _ACTS}
    return Brought(tools, acting, tuple([name for name in found.tools if name not in known]))


def _brings(found: FoundSkill) -> str:
    if found.asks_for and not found.tools:
        return f"it brings none; it names {_named(found.asks_for)}, which a skill of a workspace does not get"
    brought = _brought(found)
    return f"it brings {_named(brought.tools) or 'none'}"


def _warnings(found: FoundSkill) -> Generator[str]:
    brought = _brought(found)
    for name, what in brought.acting.items():
        yield f"with this skill an agent gets {revealed_line(name)}, which {what}"
    if brought.unknown:
        yield f"no tool here has these names, and they bring nothing: {_named(brought.unknown)}"


def _named(names: Iterable[str]) -> str:
    return ", ".join(map(revealed_line, names))


# ── Its files ──


def _refuse_another(found: FoundSkill, content: SkillContent, said: str) -> None:
    """Raise UsageError unless the hash that was said, or its beginning, is that of what lies there now."""
    if len(said) < _LEAST_OF_A_HASH or not set(said.lower()) <= set("0123456789abcdef"):
        raise UsageError(
            f"--sha256 is {said[:80]!a}; accepted: at least {_LEAST_OF_A_HASH} digits of the hash that "
            f"`{_command('show', found)}` prints. Nothing was approved."
        )
    if not content.sha256.startswith(said.lower()):
        raise UsageError(
            f"The skill `{found.name}` is not the one with the sha256 {said[:80]}: what lies there now has "
            f"{content.sha256}. Nothing was approved; read it again with `{_command('show', found)}`."
        )


def _text(file: SkillFile) -> str | None:
    try:
        return None if b"\0" in file.content else file.content.decode()
    except UnicodeDecodeError:
        return None


# ── Rows ──


def _cells(found: FoundSkill) -> tuple[str, ...]:
    what = revealed_line(found.reason or found.description)
    brought = _brought(found)
    marked = [f"{name}!" if name in brought.acting else name for name in brought.tools]
    tools = " ".join([*marked, *(f"{revealed_line(name)}?" for name in brought.unknown)])
    return revealed_line(found.name), _ORIGINS[found.origin], _state(found), tools, what


def _state(found: FoundSkill) -> str:
    return _STATES.get(found.state, found.state)


def _command(verb: str, found: FoundSkill) -> str:
    where = " --workspace PATH" if found.origin == "workspace" else ""
    return f"treadle skills {verb} {found.name}{where}"


def _row(found: FoundSkill) -> dict[str, Any]:
    brought = _brought(found)
    return {
        **msgspec.structs.asdict(found),
        "origin": _ORIGINS[found.origin],
        "tools": brought.tools,
        "acting_tools": tuple(brought.acting),
        "unknown_tools": brought.unknown,
    }


def _file_row(file: SkillFile) -> dict[str, Any]:
    return {
        "path": file.path,
        "bytes": len(file.content),
        "executable": file.executable,
        "text": _text(file),
    }


def _print_json(value: Any) -> None:
    print_json(value)
