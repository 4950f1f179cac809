"""What agents remember, as people look after it: list, search, add, pin, forget, take out and bring in."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from difflib import get_close_matches
from typing import Protocol

import msgspec
from msgspec import Struct

from treadle.domain.errors import UsageError
from treadle.domain.identity import AgentId, Instant, RunId, SessionId
from treadle.domain.memories import Memory, MemoryId, MemoryKind, MemorySource
from treadle.ports.clock import Clock, Ids
from treadle.ports.memory import Memories, MemoryKeeper, Recall
from treadle.ports.vault import Vault

MOST_CHARACTERS = 8000
ALL = 2**31
_ACCEPTED = (
    'each line is a JSON object with "text" and, if you like, "agent", "kind" (long_term or journal), "pinned", '
    '"created_at" (a date and time), "source", "used_at", "uses", "memory_id", "session_id" and "run_id"'
)


class Owners(Protocol):
    """The agents that a store knows."""

    async def agents(self) -> Mapping[str, AgentId]: ...

    async def agent(self, name: str, proposed: AgentId) -> AgentId: ...


class MemoryLine(Struct, frozen=True, omit_defaults=True, forbid_unknown_fields=True):
    """A memory as it is shown and exported: with its agent's name, and times that people can read."""

    text: str
    agent: str | None = None
    kind: MemoryKind = "long_term"
    created_at: datetime | None = None
    memory_id: str | None = None
    source: MemorySource = "import"
    pinned: bool = False
    used_at: datetime | None = None
    uses: int = 0
    session_id: str | None = None
    run_id: str | None = None


class Imported(Struct, frozen=True):
    new: int
    known: int
    """Those that were there already."""


class MemoryService:
    """The one entry for every surface to what agents remember."""

    def __init__(
        self, keeper: MemoryKeeper, memories: Memories, owners: Owners, vault: Vault, clock: Clock, ids: Ids
    ) -> None:
        self._keeper = keeper
        self._memories = memories
        self._owners = owners
        self._vault = vault
        self._clock = clock
        self._ids = ids

    async def agents(self) -> Sequence[str]:
        """The names of the agents that have run or been given memories."""
        return tuple(await self._owners.agents())

    async def list(
        self, agent: str | None = None, kind: MemoryKind | None = None, limit: int = 50
    ) -> Sequence[MemoryLine]:
        """The newest first, of one agent or of all."""
        known = await self._owners.agents()
        if agent is not None and agent not in known:
            return ()
        names = {agent_id: name for name, agent_id in known.items()}
        found = await self._keeper.list(None if agent is None else known[agent], kind, limit)
        return [line(memory, names.get(memory.agent_id)) for memory in found]

    async def search(self, agent: str, text: str, limit: int, embedder: str) -> Recall:
        """What the agent would recall for a text."""
        known = await self._owners.agents()
        if not text.strip():
            raise UsageError("There is nothing to search for: the text is empty.")
        return await self._memories.recall(known[agent], text, limit, embedder) if agent in known else Recall()

    async def add(
        self, agent: str, text: str, kind: MemoryKind = "long_term", pinned: bool = False
    ) -> Memory | None:
        """Remember something for an agent; None where it is remembered already."""
        kept = self._clean(text)
        agent_id = await self._owners.agent(agent, AgentId(self._ids("agt")))
        memory = Memory(self._ids("mem"), agent_id, kind, kept, self._clock.now(), "person", pinned=pinned)
        return memory if await self._keeper.add([memory]) else None

    async def find(self, memory_id: MemoryId) -> Memory:
        found = await self._keeper.find(memory_id)
        if found is None:
            raise UsageError(f"There is no memory {memory_id}. `treadle memory list` shows those there are.")
        return found

    async def pin(self, memory_id: MemoryId, pinned: bool) -> None:
        """Let it fade no more, or let it fade again."""
        await self.find(memory_id)
        await self._keeper.pin(memory_id, pinned)

    async def forget(self, memory_ids: Sequence[MemoryId]) -> Sequence[Memory]:
        """Delete them for good; those that were there. Nothing is deleted where one of them is not there."""
        found = [await self.find(memory_id) for memory_id in dict.fromkeys(memory_ids)]
        await self._keeper.forget([memory.memory_id for memory in found])
        return found

    async def bring_in(self, lines: Iterable[bytes], agent: str | None = None) -> Imported:
        """Add memories, one JSON object on each line, to the agents that they name or to this one. All lines are
        checked before anything is kept; what is there already is left as it is."""
        read = [_read(raw, number, agent) for number, raw in enumerate(lines, 1) if raw.strip()]
        for number, item in read:
            self._clean(item.text, f"line {number}: ")
        ids: dict[str, AgentId] = {}
        for _, item in read:
            name = agent or item.agent or ""
            if name not in ids:
                ids[name] = await self._owners.agent(name, AgentId(self._ids("agt")))
        kept = [self._memory(item, ids[agent or item.agent or ""]) for _, item in read]
        new = await self._keeper.add(kept)
        return Imported(new, len(kept) - new)

    def _memory(self, item: MemoryLine, agent_id: AgentId) -> Memory:
        return Memory(
            item.memory_id or self._ids("mem"),
            agent_id,
            item.kind,
            self._clean(item.text),
            self._clock.now() if item.created_at is None else item.created_at.timestamp(),
            item.source,
            None if item.used_at is None else item.used_at.timestamp(),
            max(0, item.uses),
            item.pinned,
            None if item.session_id is None else SessionId(item.session_id),
            None if item.run_id is None else RunId(item.run_id),
        )

    def _clean(self, text: str, where: str = "") -> str:
        """The text without secrets. Raises UsageError where there is none, or too much of it."""
        kept = self._vault.redactor.redact(text).text.strip()
        if not kept:
            raise UsageError(f"{where}the text is empty. Nothing was kept.")
        if len(kept) > MOST_CHARACTERS:
            raise UsageError(
                f"{where}the text has {len(kept)} characters, and a memory has at most {MOST_CHARACTERS}. "
                "Nothing was kept."
            )
        return kept


def refuse_unknown_agent(agent: str, known: Iterable[str]) -> None:
    """Raise UsageError for a name that nobody has, with the one that was probably meant."""
    names = sorted(set(known))
    if agent not in names:
        near = get_close_matches(agent, names, n=1)
        meant = f" Did you mean `{near[0]}`?" if near else f" Known: {', '.join(names) or 'none yet'}."
        raise UsageError(f"No agent is called `{agent}`.{meant}")


def line(memory: Memory, agent: str | None) -> MemoryLine:
    return MemoryLine(
        memory.text,
        agent or memory.agent_id,
        memory.kind,
        _moment(memory.created_at),
        memory.memory_id,
        memory.source,
        memory.pinned,
        None if memory.used_at is None else _moment(memory.used_at),
        memory.uses,
        memory.session_id,
        memory.run_id,
    )


def _moment(at: Instant) -> datetime | None:
    try:
        return datetime.fromtimestamp(at, UTC)
    except (ValueError, OverflowError, OSError):
        return None


def _read(raw: bytes, number: int, agent: str | None) -> tuple[int, MemoryLine]:
    try:
        item = msgspec.json.decode(raw, type=MemoryLine)
    except msgspec.DecodeError as error:
        raise UsageError(f"line {number} is no memory: {error}; {_ACCEPTED}. Nothing was imported.") from None
    except UnicodeDecodeError:
        raise UsageError(f"line {number} is not text in UTF-8. Nothing was imported.") from None
    if agent is None and not item.agent:
        raise UsageError(
            f'line {number} does not say whose memory it is: add "agent" to it, or say --agent NAME for all lines. '
            "Nothing was imported."
        )
    return number, item
