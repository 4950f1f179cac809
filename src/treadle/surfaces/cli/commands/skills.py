"""`treadle skills`: inspect and approve skills."""

import sys
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Annotated

from treadle.domain.errors import UsageError
from treadle.home.skill_views import (
    ORIGINS,
    describe_acting_tools,
    make_skill_detail,
    make_skill_view,
    read_skill_text,
)
from treadle.operations.skill_approvals import SkillView
from treadle.skills.content import SkillContent
from treadle.skills.inventory import FoundSkill, SkillInventory
from treadle.surfaces.cli.command_line import Argument, Group, Option
from treadle.surfaces.cli.shared_options import Json
from treadle.surfaces.home_access.connection import current_home
from treadle.surfaces.terminal.call_view import quote_lines
from treadle.surfaces.terminal.line_input import Prompt, ask_yes_or_no
from treadle.surfaces.terminal.output import Column, note, print_json, print_table
from treadle.surfaces.terminal.process import FAILED
from treadle.surfaces.terminal.text import measure_terminal, reveal_line

STATES = {"changed": "changed since"}
UNBROKEN = 100_000
"""The width of lines that go into a file or a pipe."""
MIN_HASH_DIGITS = 12


group = Group("skills")


Name = Annotated[str, Argument(metavar="NAME", help="The name of the skill.")]

InWorkspace = Annotated[
    str | None,
    Option("--workspace", metavar="PATH", help="A skill in the folder .agents/skills of this workspace."),
]


@group.command("list")
async def list_skills(
    workspace: Annotated[
        str, Option("--workspace", metavar="PATH", help="The workspace. Default: the current folder.")
    ] = ".",
    json: Json = False,
) -> int:
    """List the skills in the home, in a workspace, and those included with Treadle."""
    survey = _inventory().survey(_folder(workspace))
    if json:
        for found in survey.found:
            print_json(make_skill_view(found))
    else:
        views = list(map(make_skill_view, survey.found))
        head = (
            *("SKILL", "ORIGIN", "STATE", Column("TOOLS", shrinks_to=8)),
            Column("DESCRIPTION", shrinks_to=20),
        )
        print_table(head, list(map(_table_row, views)))
        if any(view.acting_tools for view in views):
            note("! marks tools that can write, run programs or act outside.")
        if any(view.unknown_tools for view in views):
            note("? marks names that no tool has.")
    if survey.left_out:
        note(f"{survey.left_out} more are not shown: there are too many in one folder.")
    return 0


@group.command("show")
async def show_skill(name: Name, workspace: InWorkspace = None, json: Json = False) -> int:
    """Show a skill: the tools that it requests and the text of all its files."""
    found, content = _inventory().find(name, _resolve_workspace(workspace))
    if json:
        print_json(make_skill_detail(found, content))
        return 0
    width = measure_terminal(sys.stdout).columns if sys.stdout.isatty() else UNBROKEN
    for line in _describe(found, content, width):
        print(line)
    return 0


@group.command("approve")
async def approve_skill(
    name: Name,
    workspace: InWorkspace = None,
    yes: Annotated[bool, Option("--yes", help="Do not show the skill and do not ask for confirmation.")] = False,
    sha256: Annotated[
        str | None,
        Option(
            "--sha256",
            metavar="HASH",
            help="Approve only if the skill has this hash, as `show` prints it (at least 12 digits).",
        ),
    ] = None,
    json: Json = False,
) -> int:
    """Approve the current content of a skill. A changed skill needs a new approval."""
    inventory = _inventory()
    found, content = inventory.find(name, _resolve_workspace(workspace))
    if content is None or found.state == "broken":
        raise UsageError(f"The skill `{name}` cannot be approved: {found.reason}. Fix it first.")
    if sha256 is not None:
        _check_hash(found, content, sha256)
    if found.state != "approved" and not yes:
        if not Prompt.is_possible():
            raise UsageError(
                f"The skill `{name}` needs a confirmation, and there is no terminal to ask at. Read it with "
                f"`{_command('show', found)}`, then approve it with --yes --sha256 and the hash that it prints."
            )
        if not await _is_confirmed(found, content):
            note(f"{name} was not approved. Nothing was changed.")
            return FAILED
    approved = inventory.approve(found, content)  # exactly what was shown, even if the files have changed since
    if json:
        print_json(make_skill_view(approved))
    else:
        note(f"Approved {name} as it is, {approved.path}; {_describe_tools(approved)}.")
        for line in _warnings(approved):
            note(line)
        note(f"Let an agent use it: `skills: [{name}]` in its file.")
    return 0


@group.command("remove")
async def remove_skill(
    name: Name,
    workspace: InWorkspace = None,
    delete: Annotated[bool, Option("--delete", help="Also delete its folder, if it is in the home.")] = False,
    json: Json = False,
) -> int:
    """Revoke the approval of a skill."""
    inventory = _inventory()
    if delete and workspace is not None:
        raise UsageError(
            "--delete is for skills of the home. Delete the folder of a skill of a workspace yourself."
        )
    place = None if workspace is None else _path(workspace)  # it may no longer exist
    gone = inventory.delete(name) if delete else None
    if gone is None and not inventory.revoke(name, place):
        raise UsageError(f"The skill {name!a} is not approved there. `treadle skills list` shows which are.")
    if json:
        print_json({"name": name, "removed": True, "deleted": delete})
    else:
        deleted = {"folder": ", and its folder is deleted", "link": "; it was a link, and only the link is deleted"}
        note(f"{name} is no longer approved{deleted[gone] if gone else ''}.")
    return 0


def _inventory() -> SkillInventory:
    return SkillInventory(current_home().path)


def _resolve_workspace(workspace: str | None) -> Path | None:
    return None if workspace is None else _folder(workspace)


def _folder(workspace: str) -> Path:
    path = _path(workspace)
    if not path.is_dir():
        raise UsageError(f"The workspace {workspace!a} is not a folder. Name one with --workspace PATH.")
    return path


def _path(workspace: str) -> Path:
    try:
        return Path(workspace).expanduser()
    except RuntimeError as error:
        raise UsageError(f"The workspace {workspace!a} cannot be found: {error}.") from None


async def _is_confirmed(found: FoundSkill, content: SkillContent) -> bool:
    for line in _describe(found, content, measure_terminal(sys.stderr).columns):
        print(line, file=sys.stderr, flush=True)
    return await ask_yes_or_no(f"Let agents use the skill {found.name} as it is?")


def _describe(found: FoundSkill, content: SkillContent | None, width: int) -> Generator[str]:
    """Yield all that a reviewer must see. The text of files has a margin, so that none of it can pass for a line of
    Treadle."""
    yield f"skill    {reveal_line(found.name)}"
    yield f"from     {ORIGINS[found.origin]}: {reveal_line(found.path)}"
    state, why = STATES.get(found.state, found.state), f": {reveal_line(found.reason)}" if found.reason else ""
    yield f"state    {state}{why}"
    yield f"tools    {_describe_missing_tools(found) or _join(make_skill_view(found).tools)}"
    for line in _warnings(found):
        yield f"warning  {line}"
    yield f"about    {reveal_line(found.description)}"
    if content is None:
        return
    yield f"sha256   {content.sha256}"
    yield f"files    {len(content.files)}"
    for file in content.files:
        yield ""
        yield f"{reveal_line(file.path)}, {len(file.content)} bytes{', a program' if file.executable else ''}"
        text = read_skill_text(file)
        if text is None:
            yield "  (not text, not shown)"
        else:
            yield from quote_lines(text, width)


def _describe_tools(found: FoundSkill) -> str:
    return _describe_missing_tools(found) or f"tools: {_join(make_skill_view(found).tools)}"


def _describe_missing_tools(found: FoundSkill) -> str:
    """Return that a skill has no tools, or an empty text if it has some."""
    if found.asks_for and not found.tools:
        return f"no tools: it requests {_join(found.asks_for)}, which a skill of a workspace does not get"
    return "" if make_skill_view(found).tools else "no tools"


def _warnings(found: FoundSkill) -> Generator[str]:
    for name, what in describe_acting_tools(found).items():
        yield f"with this skill an agent gets {reveal_line(name)}, which {what}"
    if unknown := make_skill_view(found).unknown_tools:
        yield f"no tool has these names: {_join(unknown)}"


def _join(names: Iterable[str]) -> str:
    return ", ".join(map(reveal_line, names))


def _check_hash(found: FoundSkill, content: SkillContent, given: str) -> None:
    """Raise UsageError unless the given hash, or its beginning, is that of the current content."""
    if len(given) < MIN_HASH_DIGITS or not set(given.lower()) <= set("0123456789abcdef"):
        raise UsageError(
            f"--sha256 is {given[:80]!a}; accepted: at least {MIN_HASH_DIGITS} digits of the hash that "
            f"`{_command('show', found)}` prints. Nothing was approved."
        )
    if not content.sha256.startswith(given.lower()):
        raise UsageError(
            f"The skill `{found.name}` does not have the sha256 {given[:80]}: its content now has "
            f"{content.sha256}. Nothing was approved; read it again with `{_command('show', found)}`."
        )


def _table_row(view: SkillView) -> tuple[str, ...]:
    what = reveal_line(view.reason or view.description)
    marked = [f"{name}!" if name in view.acting_tools else name for name in view.tools]
    tools = " ".join([*marked, *(f"{reveal_line(name)}?" for name in view.unknown_tools)])
    return reveal_line(view.name), view.origin, STATES.get(view.state, view.state), tools, what


def _command(verb: str, found: FoundSkill) -> str:
    where = " --workspace PATH" if found.origin == "workspace" else ""
    return f"treadle skills {verb} {found.name}{where}"
