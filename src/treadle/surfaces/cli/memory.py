"""`treadle memory`: what agents remember, looked after by people."""

import os
import sys
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from treadle.domain.errors import UsageError
from treadle.domain.memories import MemoryKind
from treadle.home import DEFAULT_AGENT, Home
from treadle.memory_assembly import look_at_memories, own_memories
from treadle.service.memory import ALL, MemoryLine, MemoryService, line, refuse_unknown_agent
from treadle.service.upkeep import MemoryKeeping
from treadle.surfaces.cli.printing import note
from treadle.surfaces.cli.reaching import kept_up
from treadle.surfaces.cli.tables import print_table

if TYPE_CHECKING:
    from treadle.remote.connection import Connection


async def list_memories(agent: str | None, kind: MemoryKind | None, limit: int, json: bool) -> int:
    home = _home()
    async with look_at_memories(home) as service:
        await _refuse_unknown(home, service, agent)
        found = await service.list(agent, kind, limit)
    if json:
        _print_lines(found)
    elif found:
        head = ("MEMORY", "AGENT", "KIND", "DATE", "PINNED", "TEXT")
        print_table(head, [_row(item) for item in found])
    else:
        note(f"{f'`{agent}`' if agent else 'no agent'} remembers {'nothing' if agent else 'anything'} yet")
    return 0


async def search_memories(agent: str, text: str, limit: int, json: bool) -> int:
    home = _home()
    async with look_at_memories(home) as service:
        await _refuse_unknown(home, service, agent)
        recall = await service.search(agent, text, limit, _embedder(home, agent))
    if recall.degraded is not None:
        note(f"only words were compared: {recall.degraded.reason}")
    if json:
        for hit in recall.found:
            shown = msgspec.to_builtins(line(hit.memory, agent))
            _print_json({"score": round(hit.score, 4), "by": hit.by, **shown})
    elif recall.found:
        head = ("SCORE", "BY", "MEMORY", "DATE", "TEXT")
        rows = [
            (f"{hit.score:.2f}", hit.by, hit.memory.memory_id, _date(line(hit.memory, agent)), hit.memory.text)
            for hit in recall.found
        ]
        print_table(head, rows)
    else:
        note(f"nothing that `{agent}` remembers fits")
    return 0


async def add_memory(agent: str, text: str, kind: MemoryKind, pinned: bool, json: bool) -> int:
    home = _home()
    text = _decoded(sys.stdin.buffer.read()) if text == "-" else text
    await _refuse_unknown_to(home, agent)
    async with _kept(home) as service:
        added = await service.add(agent, text, kind, pinned)
    if json:
        _print_json({"new": added is not None, "memory_id": added.memory_id if added else None})
    elif added is None:
        note(f"`{agent}` remembers this already")
    else:
        note(f"`{agent}` remembers it as {added.memory_id}")
    return 0


async def pin_memories(memory_ids: Sequence[str], pinned: bool, json: bool) -> int:
    async with _kept(_home()) as service:
        for memory_id in memory_ids:
            await service.find(memory_id)
        for memory_id in memory_ids:
            await service.pin(memory_id, pinned)
    if json:
        _print_json({"memories": memory_ids, "pinned": pinned})
    else:
        note(f"{_count(len(memory_ids))} {'pinned' if pinned else 'no longer pinned'}")
    return 0


async def forget_memories(memory_ids: Sequence[str], json: bool) -> int:
    async with _kept(_home()) as service:
        forgotten = await service.forget(memory_ids)
    runs = sorted({memory.run_id for memory in forgotten if memory.run_id is not None})
    if json:
        ids = [memory.memory_id for memory in forgotten]
        _print_json({"forgotten": ids, "made_in_runs": runs, "journals_keep_the_text": True})
        return 0
    one = len(forgotten) == 1
    note(f"{_count(len(forgotten))} deleted, with {'its' if one else 'their'} words and vectors")
    made = f"; made in {', '.join(runs)}" if runs else ""
    note(f"the journals of runs that said or recalled {'it' if one else 'them'} still hold the text{made}")
    return 0


async def export_memories(agent: str | None) -> int:
    home = _home()
    async with look_at_memories(home) as service:
        await _refuse_unknown(home, service, agent)
        _print_lines(list(reversed(await service.list(agent, limit=ALL))))
    return 0


async def import_memories(file: Path, agent: str | None, json: bool) -> int:
    home = _home()
    try:
        data = sys.stdin.buffer.read() if str(file) == "-" else file.read_bytes()  # noqa: ASYNC240 -- nothing else runs
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}. Nothing was imported.") from None
    await _refuse_unknown_to(home, agent)
    async with _kept(home) as service:
        imported = await service.bring_in(data, agent, {DEFAULT_AGENT, *home.agents()})
    if json:
        _print_json(imported)
    else:
        skipped = f"; {imported.known} skipped, there already" if imported.known else ""
        note(f"{_count(imported.new)} imported{skipped}")
    return 0


# ── Whose ──


def _home() -> Home:
    return Home.from_environment(os.environ)


def _kept(home: Home) -> AbstractAsyncContextManager[MemoryKeeping]:
    """What is remembered, to be changed: by this process, or by the one that owns the home."""

    def own() -> AbstractAsyncContextManager[MemoryKeeping]:
        return own_memories(home)

    def attached(connection: "Connection") -> MemoryKeeping:
        from treadle.remote.upkeep import RemoteMemories

        return RemoteMemories(connection)

    return kept_up(own, attached)


async def _refuse_unknown_to(home: Home, agent: str | None) -> None:
    async with look_at_memories(home) as service:
        await _refuse_unknown(home, service, agent)


async def _refuse_unknown(home: Home, service: MemoryService, agent: str | None) -> None:
    if agent is not None:
        refuse_unknown_agent(agent, {DEFAULT_AGENT, *home.agents(), *await service.agents()})


def _embedder(home: Home, agent: str) -> str:
    """The setting of an agent that has a file; for others, the one that agents have by themselves."""
    return home.agent(agent).memory.embedder if agent in home.agents() else "auto"


# ── Words ──


def _row(item: MemoryLine) -> tuple[str, ...]:
    pinned = "yes" if item.pinned else ""
    return item.memory_id or "", item.agent or "", item.kind, _date(item), pinned, item.text


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
        _print_json(item)


def _print_json(value: Any) -> None:
    sys.stdout.buffer.write(msgspec.json.encode(value) + b"\n")
