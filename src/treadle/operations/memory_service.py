"""What agents remember, as people look after it: list, search, add, pin, forget, take out and bring in."""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Protocol

import msgspec

from treadle.domain.errors import UnknownMemory, UsageError
from treadle.domain.ids import AgentId, RunId, SessionId
from treadle.domain.memories import Memory, MemoryId, MemoryKind, MemoryScope
from treadle.domain.suggestions import find_closest
from treadle.domain.users import ACCEPTED_USER, LOCAL_USER, UserId, check_user
from treadle.operations.memories import MOST_CHARACTERS, Imported, MemoryLine, line
from treadle.ports.clock import Clock, Ids
from treadle.ports.memory import Assigned, Assignment, Memories, MemoryKeeper, Recall
from treadle.ports.vault import Vault

MOST_USES = 1_000_000_000
ALL = 2**31
_BOM = b"\xef\xbb\xbf"
_A_DAY = timedelta(days=1)
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST_SESSION = 1000
_ACCEPTED_OF = {
    "text": f"text of at most {MOST_CHARACTERS} characters",
    "agent": "the name of an agent",
    "kind": "long_term or journal",
    "created_at": "a date and time such as 2026-01-31T08:30:00Z, from 1970 until now",
    "used_at": "a date and time such as 2026-01-31T08:30:00Z, from 1970 until now",
    "source": "run, tool, compaction, person or import",
    "pinned": "true or false",
    "uses": f"a whole number from 0 to {MOST_USES}",
    "memory_id": "mem_ followed by at most 64 letters, digits, _ and -",
    "session_id": f"the name of a session, at most {_LONGEST_SESSION} characters that can be seen",
    "run_id": "run_ followed by at most 64 letters, digits, _ and -",
    "owner": ACCEPTED_USER,
}
_ACCEPTED = (
    'each line is a JSON object with "text" and, if you like, "agent", "kind" (long_term or journal), "pinned", '
    '"created_at" (a date and time), "source", "used_at", "uses", "memory_id", "session_id", "run_id" and "owner"'
)


class KnownAgents(Protocol):
    """The agents that a store knows."""

    async def agents(self) -> Mapping[str, AgentId]: ...

    async def agent(self, name: str, proposed: AgentId) -> AgentId: ...


class MemoryService:
    """The one entry for every surface to what agents remember."""

    def __init__(
        self, keeper: MemoryKeeper, memories: Memories, known: KnownAgents, vault: Vault, clock: Clock, ids: Ids
    ) -> None:
        self._keeper = keeper
        self._memories = memories
        self._known = known
        self._vault = vault
        self._clock = clock
        self._ids = ids

    async def agents(self) -> Sequence[str]:
        """The names of the agents that have run or been given memories."""
        return tuple(await self._known.agents())

    async def list(
        self,
        agent: str | None = None,
        kind: MemoryKind | None = None,
        limit: int = 50,
        user: UserId | None = None,
    ) -> Sequence[MemoryLine]:
        """The newest first, of one agent or of all, and of one user or of all."""
        known = await self._known.agents()
        if agent is not None and agent not in known:
            return ()
        names = {agent_id: name for name, agent_id in known.items()}
        found = await self._keeper.list(None if agent is None else known[agent], kind, limit, user)
        return [line(memory, names.get(memory.agent_id)) for memory in found]

    async def search(self, agent: str, text: str, limit: int, embedder: str, user: UserId | None) -> Recall:
        """What the agent would recall for a text in a run of this user; None: of all users, as one that shares its
        memories would."""
        known = await self._known.agents()
        if not text.strip():
            raise UsageError("There is nothing to search for: the text is empty.")
        if agent not in known:
            return Recall()
        return await self._memories.recall(MemoryScope(known[agent], user), text, limit, embedder)

    async def add(
        self,
        agent: str,
        text: str,
        kind: MemoryKind = "long_term",
        pinned: bool = False,
        user: UserId = LOCAL_USER,
    ) -> Memory | None:
        """Have an agent remember something of a user; None where it is remembered already."""
        kept = self._clean(text)
        _check_user(user)
        agent_id = await self._known.agent(agent, AgentId(self._ids("agt")))
        memory = Memory(
            self._ids("mem"), agent_id, kind, kept, self._clock.now(), "person", pinned=pinned, owner=user
        )
        return memory if await self._keeper.add([memory]) else None

    async def find(self, memory_id: MemoryId) -> Memory:
        found = await self._keeper.find(memory_id)
        if found is None:
            raise UnknownMemory(f"There is no memory {memory_id}. `treadle memory list` shows those there are.")
        return found

    async def pin(self, memory_id: MemoryId, pinned: bool) -> None:
        """Let it fade no more, or let it fade again."""
        await self.find(memory_id)
        await self._keeper.pin(memory_id, pinned)

    async def forget(self, memory_ids: Sequence[MemoryId]) -> Sequence[Memory]:
        """Delete them with their words and vectors, and return them; nothing is deleted where one is not there.
        What runs have said or recalled stays in the journals of those runs."""
        found = [await self.find(memory_id) for memory_id in dict.fromkeys(memory_ids)]
        await self._keeper.forget([memory.memory_id for memory in found])
        return found

    async def assign(
        self,
        user: UserId,
        memory_ids: Sequence[MemoryId] | None = None,
        agent: str | None = None,
        from_user: UserId | None = None,
    ) -> Assigned:
        """Give memories to a user: those with these ids, of this agent, of that user; all that is said must fit.
        Nothing is moved where one of the ids is not there, or where nothing is said."""
        _check_user(user)
        if memory_ids is None and agent is None and from_user is None:
            raise UsageError("No memories were named: give their ids, an agent, or the user they are of now.")
        for memory_id in memory_ids or ():
            await self.find(memory_id)
        known = await self._known.agents()
        if agent is not None and agent not in known:
            return Assigned()
        ids = None if memory_ids is None else tuple(dict.fromkeys(memory_ids))
        return await self._keeper.assign(Assignment(user, ids, None if agent is None else known[agent], from_user))

    async def bring_in(
        self,
        data: bytes,
        agent: str | None = None,
        known_agents: Collection[str] = (),
        user: UserId | None = None,
    ) -> Imported:
        """Add memories, one JSON object on each line, to the agents and users that they name, or to these. All
        lines are checked before anything is kept or made; what an agent remembers already is left as it is. A
        memory keeps its id unless another one has it, as when an agent is given the memories of another; then it
        gets one that is the same each time, so that nothing comes twice."""
        owned = await self._known.agents()
        known = {*owned, *known_agents}
        if user is not None:
            _check_user(user)
        read: list[tuple[str, MemoryLine]] = []
        for number, raw in enumerate(data.removeprefix(_BOM).splitlines(), 1):
            if raw.strip():
                item = _read(raw, number)
                self._check(item, number)
                read.append((agent or _owner(item, number, known), item))
        names = dict.fromkeys(name for name, _ in read)
        ids = {name: await self._known.agent(name, AgentId(self._ids("agt"))) for name in names}
        kept: dict[MemoryId, Memory] = {}
        for name, item in read:
            memory = self._memory(item, ids[name], user or item.owner)
            other = kept.get(memory.memory_id) or await self._keeper.find(memory.memory_id)
            if item.memory_id is None or (other is not None and not _is_same(memory, other)):
                memory = msgspec.structs.replace(memory, memory_id=_id_of(memory, item))
            kept.setdefault(memory.memory_id, memory)
        new = await self._keeper.add(list(kept.values()))
        return Imported(new, len(read) - new)

    def _check(self, item: MemoryLine, number: int) -> None:
        """Raises UsageError for a value that no memory can have."""
        self._clean(item.text, f"line {number}: ")
        latest = datetime.fromtimestamp(self._clock.now(), UTC) + _A_DAY  # clocks differ
        for key, moment in (("created_at", item.created_at), ("used_at", item.used_at)):
            if moment is not None and not _EARLIEST <= _in_utc(moment) <= latest:
                raise _wrong(number, key, moment.isoformat())
        if not 0 <= item.uses <= MOST_USES:
            raise _wrong(number, "uses", str(item.uses))
        try:
            check_user(item.owner)
        except ValueError:
            raise _wrong(number, "owner", msgspec.json.encode(item.owner).decode()) from None
        for key, value, form in (
            ("memory_id", item.memory_id, r"mem_[A-Za-z0-9_-]{1,64}"),
            ("run_id", item.run_id, r"run_[A-Za-z0-9_-]{1,64}"),
            ("session_id", item.session_id, f".{{1,{_LONGEST_SESSION}}}"),
        ):
            if value is not None and not (value.isprintable() and re.fullmatch(form, value)):
                raise _wrong(number, key, msgspec.json.encode(value).decode())

    def _memory(self, item: MemoryLine, agent_id: AgentId, owner: UserId) -> Memory:
        return Memory(
            item.memory_id or "",
            agent_id,
            item.kind,
            self._clean(item.text),
            self._clock.now() if item.created_at is None else _in_utc(item.created_at).timestamp(),
            item.source,
            None if item.used_at is None else _in_utc(item.used_at).timestamp(),
            item.uses,
            item.pinned,
            None if item.session_id is None else SessionId(item.session_id),
            None if item.run_id is None else RunId(item.run_id),
            owner,
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


def _check_user(user: UserId) -> None:
    try:
        check_user(user)
    except ValueError as error:
        raise UsageError(f"No memory can be of this user: {error}. Nothing was changed.") from None


def refuse_unknown_agent(agent: str, known: Iterable[str]) -> None:
    """Raise UsageError for a name that nobody has, with the one that was probably meant."""
    names = sorted(set(known))
    if agent not in names:
        near = find_closest(agent, names)
        meant = f" Did you mean `{near}`?" if near else f" Known: {', '.join(names) or 'none yet'}."
        raise UsageError(f"No agent is called `{agent}`.{meant}")


# ── A line of a file ──


def _read(raw: bytes, number: int) -> MemoryLine:
    try:
        return msgspec.json.decode(raw, type=MemoryLine)
    except msgspec.ValidationError as error:
        if found := re.search(r"at `\$\.(\w+)`", str(error)):
            values = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
            raise _wrong(number, found[1], bytes(values[found[1]]).decode(errors="replace")) from None
        raise UsageError(f"line {number} is no memory: {error}; {_ACCEPTED}. Nothing was imported.") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"line {number} is no memory: {error}; {_ACCEPTED}. Nothing was imported.") from None
    except UnicodeDecodeError:
        raise UsageError(f"line {number} is not text in UTF-8. Nothing was imported.") from None


def _wrong(number: int, key: str, found: str) -> UsageError:
    shown = found if len(found) <= 60 else f"{found[:59]}…"
    return UsageError(f"line {number}: {key}: found {shown}; accepted: {_ACCEPTED_OF[key]}. Nothing was imported.")


def _owner(item: MemoryLine, number: int, known: Collection[str]) -> str:
    """The agent that a line names. Raises UsageError where it names none, or one that is not known."""
    if not item.agent:
        raise UsageError(
            f'line {number} does not say whose memory it is: add "agent" to it, or say --agent NAME for all lines. '
            "Nothing was imported."
        )
    try:
        refuse_unknown_agent(item.agent, known)
    except UsageError as error:
        raise UsageError(
            f"line {number}: {error} Or say --agent NAME for all lines. Nothing was imported."
        ) from None
    return item.agent


def _is_same(memory: Memory, other: Memory) -> bool:
    here, there = ((each.agent_id, each.owner, each.kind, each.text) for each in (memory, other))
    return here == there


def _id_of(memory: Memory, item: MemoryLine) -> MemoryId:
    """An id that follows from whose memory it is and from what its line says."""
    said = (item.memory_id, memory.agent_id, memory.kind, memory.text, item.created_at)
    if memory.owner != LOCAL_USER:
        said = (*said, memory.owner)
    return f"mem_{hashlib.blake2b(msgspec.json.encode(said), digest_size=16).hexdigest()}"


def _in_utc(moment: datetime) -> datetime:
    """A moment that does not say where it is meant is in UTC."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
