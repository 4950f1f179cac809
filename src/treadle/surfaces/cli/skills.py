"""`treadle skills`: what lies there, what is in it, and which of it a person has approved."""

import os
import sys
from collections.abc import Generator
from pathlib import Path
from typing import Any

import msgspec

from treadle.domain.errors import UsageError
from treadle.home import Home
from treadle.skills.content import Content, SkillFile
from treadle.skills.shelf import Found, Shelf
from treadle.surfaces.cli.calls import quoted
from treadle.surfaces.cli.printing import note
from treadle.surfaces.cli.process import FAILED, Stop
from treadle.surfaces.cli.prompt import Prompt
from treadle.surfaces.cli.tables import print_table
from treadle.surfaces.cli.terminal import revealed_line, size_of

_ORIGINS = {"home": "home", "workspace": "workspace", "shipped": "treadle"}
_STATES = {"changed": "changed since"}
_UNBROKEN = 100_000
"""The width of lines that go into a file or a pipe."""


async def list_skills(workspace: str, json: bool) -> int:
    survey = _shelf().survey(_folder(workspace))
    if json:
        for found in survey.found:
            _print_json(_row(found))
    else:
        head = ("SKILL", "ORIGIN", "STATE", "TOOLS", "WHAT IT IS")
        print_table(head, [_cells(found) for found in survey.found])
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


async def approve_skill(name: str, workspace: str | None, yes: bool, json: bool) -> int:
    shelf = _shelf()
    found, content = shelf.find(name, _chosen(workspace))
    if content is None or found.state == "broken":
        raise UsageError(f"The skill `{name}` cannot be approved: {found.reason}. Mend it first.")
    if found.state != "approved" and not yes:
        if not Prompt.is_possible():
            raise UsageError(
                f"Nobody is here to be asked about the skill `{name}`. Read it with `{_command('show', found)}`, "
                "then approve it with --yes."
            )
        if not await _is_wanted(found, content):
            note(f"{name} is not approved; nothing was changed")
            return FAILED
    approved = shelf.approve(found, content)  # just what was shown, whatever lies there by now
    if json:
        _print_json(_row(approved))
    else:
        note(f"{name} is approved as it is, {approved.path}; {_brings(approved)}")
        note(f"let an agent use it with `skills: [{name}]` in its file")
    return 0


async def remove_skill(name: str, workspace: str | None, delete: bool, json: bool) -> int:
    shelf = _shelf()
    if delete and workspace is not None:
        raise UsageError("Only a skill of the home is deleted. One of a workspace is yours to delete.")
    if delete:
        shelf.delete(name)
    elif not shelf.withdraw(name, None if workspace is None else _path(workspace)):  # it may be gone by now
        raise UsageError(f"The skill {name!a} is not approved there. `treadle skills list` shows which are.")
    if json:
        _print_json({"name": name, "removed": True, "deleted": delete})
    else:
        note(f"{name} is no longer approved{', and its folder is deleted' if delete else ''}")
    return 0


def _shelf() -> Shelf:
    return Shelf(Home.from_environment(os.environ).path)


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


async def _is_wanted(found: Found, content: Content) -> bool:
    for line in _whole(found, content, size_of(sys.stderr).columns):
        print(line, file=sys.stderr, flush=True)
    with Stop() as stop:
        typed = await Prompt(stop).ask(f"Let agents use the skill {found.name} as it is? [y/N]")
        if stop.is_heard:
            raise KeyboardInterrupt
    return (typed or "").lower() in ("y", "yes")


# ── A skill, whole ──


def _whole(found: Found, content: Content | None, width: int) -> Generator[str]:
    """All that somebody must see before they approve it. What is in its files has a margin, so that
    nothing of it can pass for a line of Treadle's own."""
    yield f"skill    {revealed_line(found.name)}"
    yield f"from     {_ORIGINS[found.origin]}: {revealed_line(found.path)}"
    yield f"state    {_state(found)}{f': {revealed_line(found.reason)}' if found.reason else ''}"
    yield f"tools    {_brings(found)}"
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


def _brings(found: Found) -> str:
    if found.tools:
        return f"it brings {', '.join(map(revealed_line, found.tools))}"
    if found.asks_for:
        named = ", ".join(map(revealed_line, found.asks_for))
        return f"it brings none; it names {named}, which a skill of a workspace does not get"
    return "it brings none"


def _text(file: SkillFile) -> str | None:
    try:
        return None if b"\0" in file.content else file.content.decode()
    except UnicodeDecodeError:
        return None


# ── Rows ──


def _cells(found: Found) -> tuple[str, ...]:
    what = revealed_line(found.reason or found.description)
    return revealed_line(found.name), _ORIGINS[found.origin], _state(found), " ".join(found.tools), what


def _state(found: Found) -> str:
    return _STATES.get(found.state, found.state)


def _command(verb: str, found: Found) -> str:
    where = " --workspace PATH" if found.origin == "workspace" else ""
    return f"treadle skills {verb} {found.name}{where}"


def _row(found: Found) -> dict[str, Any]:
    return {**msgspec.structs.asdict(found), "origin": _ORIGINS[found.origin]}


def _file_row(file: SkillFile) -> dict[str, Any]:
    return {
        "path": file.path,
        "bytes": len(file.content),
        "executable": file.executable,
        "text": _text(file),
    }


def _print_json(value: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")
