"""`treadle memory`: what agents remember."""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec

from treadle.bootstrap.callers import open_owning_memory_caller, open_readonly_memory_caller
from treadle.config.home import DEFAULT_AGENT, Home
from treadle.domain.agents import MemorySettings
from treadle.domain.errors import UsageError
from treadle.domain.users import LOCAL_USER
from treadle.operations import memories
from treadle.operations.memories import SavedMemory
from treadle.operations.memory_lines import MemoryLine, line
from treadle.operations.memory_service import ALL, refuse_unknown_agent
from treadle.operations.operation import LocalCaller
from treadle.ports.memory import FoundMemory
from treadle.surfaces.cli.command_line import Argument, Group, Option
from treadle.surfaces.cli.shared_options import AgentOption, Json
from treadle.surfaces.home_access.connection import current_home, open_admin_caller
from treadle.surfaces.home_access.references import find_memories
from treadle.surfaces.home_access.session_folder import find_agent_folder
from treadle.surfaces.terminal.output import (
    Column,
    format_count,
    note,
    print_json,
    print_list,
    print_result,
    print_table,
    short_id,
    when,
)
from treadle.system.workspace_identity import identify_workspace

AnyAgent = Annotated[
    str | None, Option("-a", "--agent", metavar="NAME", help="Only this agent. Default: all agents.")
]
AnyWorkspace = Annotated[
    Path | None, Option("--workspace", metavar="PATH", help="Only the workspace of this folder. Default: all.")
]
OneUser = Annotated[str, Option("--user", metavar="NAME", help="The user. Default: the local user.")]
AnyUser = Annotated[str | None, Option("--user", metavar="NAME", help="Only this user. Default: all users.")]
Ids = Annotated[
    list[str], Argument(metavar="MEMORY…", help="The ids of memories, mem_…, their beginnings, or `last`.")
]
Kind = Literal["long_term", "journal"]
TEXT = Column("TEXT", shrinks_to=28)
group = Group("memory")


@group.command("list")
async def list_memories(
    agent: AnyAgent = None,
    kind: Annotated[Kind | None, Option(help="Only this kind.")] = None,
    limit: Annotated[int, Option(min=1, help="Maximum number of rows.")] = 50,
    user: AnyUser = None,
    workspace: AnyWorkspace = None,
    json: Json = False,
) -> int:
    """List memories, newest first."""
    home = current_home()
    place = None if workspace is None else identify_workspace(workspace)
    async with open_readonly_memory_caller(home) as caller:
        await _refuse_unknown(home, caller, agent)
        found = await caller.context.memory.list(agent, kind, limit, user, place)
    head = (
        *("MEMORY", Column("AGENT", shrinks_to=8), Column("USER", shrinks_to=5, is_optional=True)),
        *(Column("PINNED", is_optional=True), Column("KIND", is_optional=True), "SAVED", TEXT),
    )
    of_agent = "" if agent is None else f" of the agent `{agent}`"
    of_user = "" if user is None else f" of the user `{user}`"
    print_list(found, head, _row, json=json, empty=f"No memories{of_agent}{of_user} yet.")
    return 0


@group.command("search")
async def search_memories(
    text: Annotated[str, Argument(metavar="TEXT", help="The text to search for.")],
    agent: AgentOption = "default",
    limit: Annotated[int, Option(min=1, max=50, help="Maximum number of memories.")] = 5,
    user: OneUser = "local",
    workspace: AnyWorkspace = None,
    json: Json = False,
) -> int:
    """Show which memories an agent recalls for a text in a run of a user, with their scores. An agent with
    `memory: {shared: true}` recalls the memories of all users. Without --workspace, those of all workspaces are
    searched."""
    home = current_home()
    place = None if workspace is None else identify_workspace(workspace)
    async with open_readonly_memory_caller(home) as caller:
        await _refuse_unknown(home, caller, agent)
        settings = _settings(home, agent)
        owner = None if settings.shared else user
        recall = await caller.context.memory.search(agent, text, limit, settings.embedder, owner, place)
    if recall.degraded is not None:
        note(f"Searched by words alone: {recall.degraded.reason}")
    if json:
        for hit in recall.found:
            shown = msgspec.to_builtins(line(hit.memory, agent))
            print_json({"score": round(hit.score, 4), "by": hit.by, **shown})
    elif recall.found:
        head = (
            *(Column("SCORE", is_number=True), Column("BY", is_optional=True), "MEMORY"),
            *(Column("USER", shrinks_to=5, is_optional=True), "SAVED", TEXT),
        )
        print_table(head, [_found_row(hit, agent) for hit in recall.found])
    else:
        of_user = "" if user == LOCAL_USER else f" of the user `{user}`"
        note(f"No memory of `{agent}`{of_user} matches.")
    return 0


@group.command("add")
async def add_memory(
    text: Annotated[str, Argument(metavar="TEXT", help="The text. `-` reads it from standard input.")],
    agent: AgentOption = "default",
    kind: Annotated[Kind, Option(help="A fact, or a journal note.")] = "long_term",
    pinned: Annotated[bool, Option("--pinned", help="Pin the memory.")] = False,
    user: OneUser = "local",
    workspace: Annotated[
        Path | None,
        Option(metavar="PATH", help="The folder that it belongs to. Default: the agent's, or the current one."),
    ] = None,
    json: Json = False,
) -> int:
    """Add a memory to an agent, in a workspace."""
    home = current_home()
    text = _decode(sys.stdin.buffer.read()) if text == "-" else text
    await _refuse_unknown_agent(home, agent)
    place = identify_workspace(_find_folder(home, agent) if workspace is None else workspace)
    async with open_admin_caller(home, open_owning_memory_caller) as caller:
        wanted = memories.SaveMemory(agent=agent, text=text, kind=kind, pinned=pinned, user=user, workspace=place)
        added = await caller.call(memories.SAVE, wanted)
    saved = SavedMemory(added[0].memory_id if added else None)
    said = f"Saved as {saved.memory_id}, for `{agent}`." if added else f"`{agent}` already remembers this."
    print_result(saved, said, json=json)
    return 0


@group.command("pin")
async def pin_memories(memory_ids: Ids, json: Json = False) -> int:
    """Pin memories: their score does not decay."""
    return await _pin(memory_ids, True, json)


@group.command("unpin")
async def unpin_memories(memory_ids: Ids, json: Json = False) -> int:
    """Unpin memories."""
    return await _pin(memory_ids, False, json)


@group.command("forget")
async def forget_memories(memory_ids: Ids, json: Json = False) -> int:
    """Delete memories with their index entries. The journals of runs that saved or recalled them keep the text."""
    home = current_home()
    found = await find_memories(home, memory_ids)
    async with open_admin_caller(home, open_owning_memory_caller) as caller:
        forgotten = await caller.call(memories.FORGET_SEVERAL, memories.ForgetMemories(found))
    runs = sorted({memory.run_id for memory in forgotten if memory.run_id is not None})
    if json:
        ids = [memory.memory_id for memory in forgotten]
        print_json({"forgotten": ids, "made_in_runs": runs, "journals_keep_the_text": True})
        return 0
    note(f"Deleted {_count(len(forgotten))} with the index entries.")
    saved_by = f", such as {', '.join(runs)}" if runs else ""
    note(f"The journals of runs that saved or recalled them still hold the text{saved_by}.")
    return 0


@group.command("assign")
async def assign_memories(
    user: Annotated[
        str | None,
        Argument(metavar="[USER]", help="The new owner. `local` is the local user. Optional with --workspace."),
    ] = None,
    memory_ids: Annotated[
        list[str] | None,
        Argument(metavar="[MEMORY…]", help="The ids of memories, mem_…, their beginnings, or `last`."),
    ] = None,
    agent: AnyAgent = None,
    from_user: Annotated[
        str | None, Option("--from-user", metavar="NAME", help="Only this user. Default: all users.")
    ] = None,
    workspace: Annotated[
        Path | None,
        Option(metavar="PATH", help="The new workspace. Without ids and --from-workspace: of those without one."),
    ] = None,
    from_workspace: Annotated[
        Path | None, Option("--from-workspace", metavar="PATH", help="Only of this workspace, as it was named.")
    ] = None,
    json: Json = False,
) -> int:
    """Assign memories to a user or a workspace: those that match all of the ids, --agent, --from-user and
    --from-workspace. A fact that the user already has there is merged.

    Memories from before workspaces belong to none: `treadle memory assign --workspace PATH` gives them one."""
    home = current_home()
    await _refuse_unknown_agent(home, agent)
    if user is not None and user.startswith("mem_"):
        user, memory_ids = None, [user, *(memory_ids or ())]
    found = tuple(await find_memories(home, memory_ids)) if memory_ids else None
    place = None if workspace is None else identify_workspace(_require_folder(workspace))
    before = None if from_workspace is None else identify_workspace(from_workspace)
    wanted = memories.AssignMemories(
        user=user, memory_ids=found, agent=agent, from_user=from_user, workspace=place, from_workspace=before
    )
    async with open_admin_caller(home, open_owning_memory_caller) as caller:
        assigned = await caller.call(memories.ASSIGN, wanted)
    target = " in ".join([f"`{each}`" for each in (user, place) if each is not None])
    merged = f"; {assigned.merged} merged with facts that were there already" if assigned.merged else ""
    print_result(assigned, f"Assigned {_count(assigned.moved)} to {target}{merged}.", json=json)
    return 0


def _require_folder(path: Path) -> Path:
    if not path.is_dir():
        raise UsageError(f"--workspace {path} is not a folder. Name the folder of the project.")
    return path


def _find_folder(home: Home, agent: str) -> str:
    """Return the folder in which an agent would work when it is called here."""
    try:
        return find_agent_folder(home.agent(agent))
    except UsageError:  # the default agent before it has a model
        return str(Path.cwd())


@group.command("export")
async def export_memories(agent: AnyAgent = None, user: AnyUser = None) -> int:
    """Print memories as JSON, one per line, oldest first."""
    home = current_home()
    async with open_readonly_memory_caller(home) as caller:
        await _refuse_unknown(home, caller, agent)
        found = await caller.context.memory.list(agent, limit=ALL, user=user)
    for item in reversed(found):
        print_json(item)
    return 0


@group.command("import")
async def import_memories(
    file: Annotated[Path, Argument(metavar="FILE", help="An exported file. `-` reads standard input.")],
    agent: Annotated[
        str | None, Option("-a", "--agent", metavar="NAME", help="Assign all memories to this agent.")
    ] = None,
    user: Annotated[str | None, Option("--user", metavar="NAME", help="Assign all memories to this user.")] = None,
    json: Json = False,
) -> int:
    """Import memories from a file, one JSON object per line. If one is invalid, none is imported. Memories that an
    agent already has are skipped."""
    home = current_home()
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}. Nothing was imported.") from None
    await _refuse_unknown_agent(home, agent)
    wanted = memories.ImportMemories(data, agent, (DEFAULT_AGENT, *home.agents()), user)
    async with open_admin_caller(home, open_owning_memory_caller) as caller:
        imported = await caller.call(memories.IMPORT, wanted)
    skipped = f"; skipped {imported.known} that exist already" if imported.known else ""
    print_result(imported, f"Imported {_count(imported.new)}{skipped}.", json=json)
    return 0


async def _pin(memory_ids: Sequence[str], pinned: bool, json: bool) -> int:
    home = current_home()
    found = await find_memories(home, memory_ids)
    async with open_admin_caller(home, open_owning_memory_caller) as caller:
        for memory_id in found:  # an unknown one raises before any is changed
            await caller.call(memories.FIND, memories.OneMemory(memory_id))
        for memory_id in found:
            await caller.call(memories.PIN, memories.PinMemory(memory_id, pinned))
    said = f"{'Pinned' if pinned else 'Unpinned'} {_count(len(found))}."
    print_result({"memories": found, "pinned": pinned}, said, json=json)
    return 0


# ── Agents ──


async def _refuse_unknown_agent(home: Home, agent: str | None) -> None:
    async with open_readonly_memory_caller(home) as caller:
        await _refuse_unknown(home, caller, agent)


async def _refuse_unknown(home: Home, caller: LocalCaller, agent: str | None) -> None:
    if agent is not None:
        refuse_unknown_agent(agent, {DEFAULT_AGENT, *home.agents(), *await caller.context.memory.agents()})


def _settings(home: Home, agent: str) -> MemorySettings:
    """Return the memory settings of an agent; the defaults for an agent without a file."""
    return home.agent(agent).memory if agent in home.agents() else MemorySettings()


# ── Rows ──


def _row(item: MemoryLine) -> tuple[str, ...]:
    pinned = "yes" if item.pinned else ""
    return short_id(item.memory_id or ""), item.agent or "", item.owner, pinned, item.kind, _date(item), item.text


def _found_row(hit: FoundMemory, agent: str) -> tuple[str, ...]:
    memory = hit.memory
    date = _date(line(memory, agent))
    return f"{hit.score:.2f}", hit.by, short_id(memory.memory_id), memory.owner, date, memory.text


def _date(item: MemoryLine) -> str:
    return "" if item.created_at is None else when(item.created_at)


def _count(number: int) -> str:
    return format_count(number, "memory", "memories")


def _decode(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UsageError("The text is not UTF-8. Nothing was saved.") from None
