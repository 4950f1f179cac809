"""`treadle memory`: what agents remember, looked after by people."""

import os
import sys
from collections.abc import Sequence
from datetime import datetime
from pathlib import Path

import msgspec

from treadle.bootstrap.callers import open_owning_memory_caller, open_readonly_memory_caller
from treadle.config.home import DEFAULT_AGENT, Home
from treadle.domain.agents import MemorySettings
from treadle.domain.errors import UsageError
from treadle.domain.memories import MemoryKind
from treadle.domain.users import LOCAL_USER
from treadle.operations import memories
from treadle.operations.memories import MemoryLine, SavedMemory, line
from treadle.operations.memory_service import ALL, refuse_unknown_agent
from treadle.operations.operation import LocalCaller
from treadle.ports.memory import FoundMemory
from treadle.surfaces.cli.connection import administering
from treadle.surfaces.cli.event_output import note
from treadle.surfaces.cli.tables import print_table
from treadle.surfaces.cli.terminal import print_json


async def list_memories(
    agent: str | None, kind: MemoryKind | None, limit: int, user: str | None, json: bool
) -> int:
    home = _home()
    async with open_readonly_memory_caller(home) as caller:
        await _refuse_unknown(home, caller, agent)
        found = await caller.context.memory.list(agent, kind, limit, user)
    if json:
        _print_lines(found)
    elif found:
        head = ("MEMORY", "AGENT", "USER", "KIND", "DATE", "PINNED", "TEXT")
        print_table(head, [_row(item) for item in found])
    else:
        of_whom = "" if user is None else f" of user `{user}`"
        note(f"{f'`{agent}`' if agent else 'no agent'} remembers {'nothing' if agent else 'anything'}{of_whom} yet")
    return 0


async def search_memories(agent: str, text: str, limit: int, user: str, json: bool) -> int:
    home = _home()
    async with open_readonly_memory_caller(home) as caller:
        await _refuse_unknown(home, caller, agent)
        settings = _settings(home, agent)
        owner = None if settings.shared else user
        recall = await caller.context.memory.search(agent, text, limit, settings.embedder, owner)
    if recall.degraded is not None:
        note(f"only words were compared: {recall.degraded.reason}")
    if json:
        for hit in recall.found:
            shown = msgspec.to_builtins(line(hit.memory, agent))
            print_json({"score": round(hit.score, 4), "by": hit.by, **shown})
    elif recall.found:
        head = ("SCORE", "BY", "MEMORY", "USER", "DATE", "TEXT")
        print_table(head, [_found_row(hit, agent) for hit in recall.found])
    else:
        of_whom = "" if user == LOCAL_USER else f" of user `{user}`"
        note(f"nothing that `{agent}` remembers{of_whom} fits")
    return 0


async def add_memory(agent: str, text: str, kind: MemoryKind, pinned: bool, user: str, json: bool) -> int:
    home = _home()
    text = _decoded(sys.stdin.buffer.read()) if text == "-" else text
    await _refuse_unknown_to(home, agent)
    async with administering(home, open_owning_memory_caller) as caller:
        added = await caller.call(memories.SAVE, memories.SaveMemory(agent, text, kind, pinned, user))
    if json:
        print_json(SavedMemory(added[0].memory_id if added else None))
    elif not added:
        note(f"`{agent}` remembers this already")
    else:
        note(f"`{agent}` remembers it as {added[0].memory_id}")
    return 0


async def pin_memories(memory_ids: Sequence[str], pinned: bool, json: bool) -> int:
    async with administering(_home(), open_owning_memory_caller) as caller:
        for memory_id in memory_ids:
            await caller.call(memories.FIND, memories.OneMemory(memory_id))
        for memory_id in memory_ids:
            await caller.call(memories.PIN, memories.PinMemory(memory_id, pinned))
    if json:
        print_json({"memories": memory_ids, "pinned": pinned})
    else:
        note(f"{_count(len(memory_ids))} {'pinned' if pinned else 'no longer pinned'}")
    return 0


async def forget_memories(memory_ids: Sequence[str], json: bool) -> int:
    async with administering(_home(), open_owning_memory_caller) as caller:
        forgotten = await caller.call(memories.FORGET_SEVERAL, memories.ForgetMemories(list(memory_ids)))
    runs = sorted({memory.run_id for memory in forgotten if memory.run_id is not None})
    if json:
        ids = [memory.memory_id for memory in forgotten]
        print_json({"forgotten": ids, "made_in_runs": runs, "journals_keep_the_text": True})
        return 0
    one = len(forgotten) == 1
    note(f"{_count(len(forgotten))} deleted, with {'its' if one else 'their'} words and vectors")
    made = f"; made in {', '.join(runs)}" if runs else ""
    note(f"the journals of runs that said or recalled {'it' if one else 'them'} still hold the text{made}")
    return 0


async def assign_memories(
    user: str, memory_ids: Sequence[str], agent: str | None, from_user: str | None, json: bool
) -> int:
    home = _home()
    await _refuse_unknown_to(home, agent)
    wanted = memories.AssignMemories(user, tuple(memory_ids) or None, agent, from_user)
    async with administering(home, open_owning_memory_caller) as caller:
        assigned = await caller.call(memories.ASSIGN, wanted)
    if json:
        print_json(assigned)
        return 0
    merged = f"; {assigned.merged} merged with what `{user}` had already" if assigned.merged else ""
    note(f"{_count(assigned.moved)} assigned to `{user}`{merged}")
    return 0


async def export_memories(agent: str | None, user: str | None) -> int:
    home = _home()
    async with open_readonly_memory_caller(home) as caller:
        await _refuse_unknown(home, caller, agent)
        _print_lines(list(reversed(await caller.context.memory.list(agent, limit=ALL, user=user))))
    return 0


async def import_memories(file: Path, agent: str | None, user: str | None, json: bool) -> int:
    home = _home()
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()  # noqa: ASYNC240 -- nothing else runs
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}. Nothing was imported.") from None
    await _refuse_unknown_to(home, agent)
    wanted = memories.ImportMemories(data, agent, (DEFAULT_AGENT, *home.agents()), user)
    async with administering(home, open_owning_memory_caller) as caller:
        imported = await caller.call(memories.IMPORT, wanted)
    if json:
        print_json(imported)
    else:
        skipped = f"; {imported.known} skipped, there already" if imported.known else ""
        note(f"{_count(imported.new)} imported{skipped}")
    return 0


# ── Whose ──


def _home() -> Home:
    return Home.from_environment(os.environ)


async def _refuse_unknown_to(home: Home, agent: str | None) -> None:
    async with open_readonly_memory_caller(home) as caller:
        await _refuse_unknown(home, caller, agent)


async def _refuse_unknown(home: Home, caller: LocalCaller, agent: str | None) -> None:
    if agent is not None:
        refuse_unknown_agent(agent, {DEFAULT_AGENT, *home.agents(), *await caller.context.memory.agents()})


def _settings(home: Home, agent: str) -> MemorySettings:
    """Those of an agent that has a file; for others, those that agents have by themselves."""
    return home.agent(agent).memory if agent in home.agents() else MemorySettings()


# ── Words ──


def _row(item: MemoryLine) -> tuple[str, ...]:
    pinned = "yes" if item.pinned else ""
    return item.memory_id or "", item.agent or "", item.owner, item.kind, _date(item), pinned, item.text


def _found_row(hit: FoundMemory, agent: str) -> tuple[str, ...]:
    memory = hit.memory
    return f"{hit.score:.2f}", hit.by, memory.memory_id, memory.owner, _date(line(memory, agent)), memory.text


def _date(item: MemoryLine) -> str:
    moment: datetime | None = item.created_at
    return "" if moment is None else moment.astimezone().strftime("%Y-%m-%d %H:%M")


def _count(number: int) -> str:
    return f"{number} {'memory' if number == 1 else 'memories'}"


def _decoded(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise UsageError("The text is not in UTF-8. Nothing was kept.") from None


def _print_lines(items: Sequence[MemoryLine]) -> None:
    for item in items:
        print_json(item)
