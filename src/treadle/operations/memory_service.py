"""Memory operations for users: list, search, add, pin, delete, export and import."""

import hashlib
import re
from collections.abc import Collection, Iterable, Sequence
from datetime import UTC, datetime, timedelta

import msgspec

from treadle.domain.errors import UnknownMemory, UsageError
from treadle.domain.ids import AgentId, RunId, SessionId
from treadle.domain.memories import Memory, MemoryId, MemoryKind, MemoryScope
from treadle.domain.suggestions import find_closest
from treadle.domain.users import ACCEPTED_USER, LOCAL_USER, UserId, check_user
from treadle.domain.workspaces import MAX_WORKSPACE_CHARACTERS, NO_WORKSPACE, WorkspaceId
from treadle.operations.memory_lines import MAX_CHARACTERS, Imported, MemoryLine, line
from treadle.ports.clock import Clock, Ids
from treadle.ports.memory import Assigned, Assignment, KnownAgents, Memories, MemoryKeeper, Recall
from treadle.ports.vault import Vault

MAX_USES = 1_000_000_000
ALL = 2**31
_BOM = b"\xef\xbb\xbf"
_A_DAY = timedelta(days=1)
_EARLIEST = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_SESSION_CHARACTERS = 1000
_ACCEPTED_OF = {
    "text": f"text of at most {MAX_CHARACTERS} characters",
    "agent": "the name of an agent",
    "kind": "long_term or journal",
    "created_at": "a date and time such as 2026-01-31T08:30:00Z, from 1970 until now",
    "used_at": "a date and time such as 2026-01-31T08:30:00Z, from 1970 until now",
    "source": "run, tool, compaction, person or import",
    "pinned": "true or false",
    "uses": f"a whole number from 0 to {MAX_USES}",
    "memory_id": "mem_ followed by at most 64 letters, digits, _ and -",
    "session_id": f"the name of a session, at most {_MAX_SESSION_CHARACTERS} characters that can be seen",
    "run_id": "run_ followed by at most 64 letters, digits, _ and -",
    "owner": ACCEPTED_USER,
    "workspace": f"the id of a workspace, a path of at most {MAX_WORKSPACE_CHARACTERS} characters",
}
_ACCEPTED = (
    'each line is a JSON object with "text" and, if you like, "agent", "kind" (long_term or journal), "pinned", '
    '"created_at" (a date and time), "source", "used_at", "uses", "memory_id", "session_id", "run_id", '
    '"owner" and "workspace"'
)


class MemoryService:
    """All memory operations, for every surface."""

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
        """Return the names of the agents that have runs or memories."""
        return tuple(await self._known.agents())

    async def list(
        self,
        agent: str | None = None,
        kind: MemoryKind | None = None,
        limit: int = 50,
        user: UserId | None = None,
        workspace: WorkspaceId | None = None,
    ) -> Sequence[MemoryLine]:
        """Return memories, newest first, of one agent or all, of one user or all, in one workspace or all."""
        known = await self._known.agents()
        if agent is not None and agent not in known:
            return ()
        names = {agent_id: name for name, agent_id in known.items()}
        found = await self._keeper.list(None if agent is None else known[agent], kind, limit, user, workspace)
        return [line(memory, names.get(memory.agent_id)) for memory in found]

    async def search(
        self,
        agent: str,
        text: str,
        limit: int,
        embedder: str,
        user: UserId | None,
        workspace: WorkspaceId | None = None,
    ) -> Recall:
        """Return what the agent would recall for a text in a run of this user in this workspace. None: of all
        users, as for an agent that shares its memories, or of all workspaces."""
        known = await self._known.agents()
        if not text.strip():
            raise UsageError("There is nothing to search for: the text is empty.")
        if agent not in known:
            return Recall()
        return await self._memories.recall(MemoryScope(known[agent], user, workspace), text, limit, embedder)

    async def add(
        self,
        agent: str,
        text: str,
        kind: MemoryKind = "long_term",
        pinned: bool = False,
        user: UserId = LOCAL_USER,
        workspace: WorkspaceId = NO_WORKSPACE,
    ) -> Memory | None:
        """Add a memory of a user to an agent. Return None if the agent already has it in this workspace."""
        kept = self._clean(text)
        _check_user(user)
        agent_id = await self._known.agent(agent, AgentId(self._ids("agt")))
        memory = Memory(
            memory_id=self._ids("mem"),
            agent_id=agent_id,
            kind=kind,
            text=kept,
            created_at=self._clock.now(),
            source="person",
            pinned=pinned,
            owner=user,
            workspace=workspace,
        )
        return memory if await self._keeper.add([memory]) else None

    async def find(self, memory_id: MemoryId) -> Memory:
        found = await self._keeper.find(memory_id)
        if found is None:
            raise UnknownMemory(f"There is no memory {memory_id}. `treadle memory list` shows all memories.")
        return found

    async def pin(self, memory_id: MemoryId, pinned: bool) -> None:
        """Pin a memory, so that its score does not decrease with age, or unpin it."""
        await self.find(memory_id)
        await self._keeper.pin(memory_id, pinned)

    async def forget(self, memory_ids: Sequence[MemoryId]) -> Sequence[Memory]:
        """Delete memories with their index and vectors, and return them. If one does not exist, delete none.

        The journals of runs that saved or recalled them are not changed."""
        found = [await self.find(memory_id) for memory_id in dict.fromkeys(memory_ids)]
        await self._keeper.forget([memory.memory_id for memory in found])
        return found

    async def assign(self, wanted: Assignment, agent: str | None = None) -> Assigned:
        """Assign memories to a user or a workspace: those that match all given ids, agent, user and workspace.

        Without ids and without a current workspace, only memories that have no workspace get one. If one of the ids
        does not exist, or nothing is given, assign none."""
        if wanted.owner is not None:
            _check_user(wanted.owner)
        if wanted.owner is None and wanted.workspace is None:
            raise UsageError("Name a user or a workspace to assign the memories to. Nothing was changed.")
        if wanted.workspace is not None and wanted.memory_ids is None and wanted.before_workspace is None:
            wanted = msgspec.structs.replace(wanted, before_workspace=NO_WORKSPACE)
        filters = (wanted.memory_ids, agent, wanted.before, wanted.before_workspace)
        if all(each is None for each in filters):
            raise UsageError("No memories are selected: pass their ids, an agent, or their current user.")
        for memory_id in wanted.memory_ids or ():
            await self.find(memory_id)
        known = await self._known.agents()
        if agent is not None and agent not in known:
            return Assigned()
        ids = None if wanted.memory_ids is None else tuple(dict.fromkeys(wanted.memory_ids))
        agent_id = None if agent is None else known[agent]
        return await self._keeper.assign(msgspec.structs.replace(wanted, memory_ids=ids, agent_id=agent_id))

    async def import_lines(
        self,
        data: bytes,
        agent: str | None = None,
        known_agents: Collection[str] = (),
        user: UserId | None = None,
    ) -> Imported:
        """Import memories, one JSON object per line, for the agents and users that they name, or for these.

        All lines are checked before anything is stored. Memories that an agent already has are skipped. A memory
        keeps its id unless another memory has it, for example when an agent is given the memories of another agent.
        Then it gets a derived id that is always the same, so a repeated import adds nothing."""
        owned = await self._known.agents()
        known = {*owned, *known_agents}
        if user is not None:
            _check_user(user)
        read: list[tuple[str, MemoryLine]] = []
        for number, raw in enumerate(data.removeprefix(_BOM).splitlines(), 1):
            if raw.strip():
                item = _parse_line(raw, number)
                self._check(item, number)
                read.append((agent or _find_agent(item, number, known), item))
        names = dict.fromkeys(name for name, _ in read)
        ids = {name: await self._known.agent(name, AgentId(self._ids("agt"))) for name in names}
        kept: dict[MemoryId, Memory] = {}
        for name, item in read:
            memory = self._memory(item, ids[name], user or item.owner)
            other = kept.get(memory.memory_id) or await self._keeper.find(memory.memory_id)
            if item.memory_id is None or (other is not None and not _is_same(memory, other)):
                memory = msgspec.structs.replace(memory, memory_id=_derive_id(memory, item))
            kept.setdefault(memory.memory_id, memory)
        new = await self._keeper.add(list(kept.values()))
        return Imported(new, len(read) - new)

    def _check(self, item: MemoryLine, number: int) -> None:
        """Raise UsageError for a value that no memory can have."""
        self._clean(item.text, f"line {number}: ")
        latest = datetime.fromtimestamp(self._clock.now(), UTC) + _A_DAY  # clocks differ
        for key, moment in (("created_at", item.created_at), ("used_at", item.used_at)):
            if moment is not None and not _EARLIEST <= _to_utc(moment) <= latest:
                raise _make_error(number, key, moment.isoformat())
        if "\0" in item.workspace or len(item.workspace) > MAX_WORKSPACE_CHARACTERS:
            raise _make_error(number, "workspace", msgspec.json.encode(item.workspace).decode())
        if not 0 <= item.uses <= MAX_USES:
            raise _make_error(number, "uses", str(item.uses))
        try:
            check_user(item.owner)
        except ValueError:
            raise _make_error(number, "owner", msgspec.json.encode(item.owner).decode()) from None
        for key, value, form in (
            ("memory_id", item.memory_id, r"mem_[A-Za-z0-9_-]{1,64}"),
            ("run_id", item.run_id, r"run_[A-Za-z0-9_-]{1,64}"),
            ("session_id", item.session_id, f".{{1,{_MAX_SESSION_CHARACTERS}}}"),
        ):
            if value is not None and not (value.isprintable() and re.fullmatch(form, value)):
                raise _make_error(number, key, msgspec.json.encode(value).decode())

    def _memory(self, item: MemoryLine, agent_id: AgentId, owner: UserId) -> Memory:
        return Memory(
            memory_id=item.memory_id or "",
            agent_id=agent_id,
            kind=item.kind,
            text=self._clean(item.text),
            created_at=self._clock.now() if item.created_at is None else _to_utc(item.created_at).timestamp(),
            source=item.source,
            used_at=None if item.used_at is None else _to_utc(item.used_at).timestamp(),
            uses=item.uses,
            pinned=item.pinned,
            session_id=None if item.session_id is None else SessionId(item.session_id),
            run_id=None if item.run_id is None else RunId(item.run_id),
            owner=owner,
            workspace=item.workspace,
        )

    def _clean(self, text: str, where: str = "") -> str:
        """Return the redacted text. Raise UsageError if it is empty or too long."""
        kept = self._vault.redactor.redact(text).text.strip()
        if not kept:
            raise UsageError(f"{where}the text is empty. Nothing was stored.")
        if len(kept) > MAX_CHARACTERS:
            raise UsageError(
                f"{where}the text has {len(kept)} characters, and a memory has at most {MAX_CHARACTERS}. "
                "Nothing was stored."
            )
        return kept


def _check_user(user: UserId) -> None:
    try:
        check_user(user)
    except ValueError as error:
        raise UsageError(f"The user of a memory is invalid: {error}. Nothing was changed.") from None


def refuse_unknown_agent(agent: str, known: Iterable[str]) -> None:
    """Raise UsageError for an unknown agent, with the closest known name."""
    names = sorted(set(known))
    if agent not in names:
        near = find_closest(agent, names)
        meant = f" Did you mean `{near}`?" if near else f" Known: {', '.join(names) or 'none yet'}."
        raise UsageError(f"No agent is called `{agent}`.{meant}")


# ── Lines of an import ──


def _parse_line(raw: bytes, number: int) -> MemoryLine:
    try:
        return msgspec.json.decode(raw, type=MemoryLine)
    except msgspec.ValidationError as error:
        if found := re.search(r"at `\$\.(\w+)`", str(error)):
            values = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
            raise _make_error(number, found[1], bytes(values[found[1]]).decode(errors="replace")) from None
        raise UsageError(f"line {number} is not a memory: {error}; {_ACCEPTED}. Nothing was imported.") from None
    except (msgspec.DecodeError, RecursionError) as error:
        raise UsageError(f"line {number} is not a memory: {error}; {_ACCEPTED}. Nothing was imported.") from None
    except UnicodeDecodeError:
        raise UsageError(f"line {number} is not text in UTF-8. Nothing was imported.") from None


def _make_error(number: int, key: str, found: str) -> UsageError:
    shown = found if len(found) <= 60 else f"{found[:59]}…"
    return UsageError(f"line {number}: {key}: found {shown}; accepted: {_ACCEPTED_OF[key]}. Nothing was imported.")


def _find_agent(item: MemoryLine, number: int, known: Collection[str]) -> str:
    """Return the agent that a line names. Raise UsageError if it names none or an unknown one."""
    if not item.agent:
        raise UsageError(
            f'line {number} names no agent: add "agent" to it, or pass --agent NAME for all lines. '
            "Nothing was imported."
        )
    try:
        refuse_unknown_agent(item.agent, known)
    except UsageError as error:
        raise UsageError(
            f"line {number}: {error} Or pass --agent NAME for all lines. Nothing was imported."
        ) from None
    return item.agent


def _is_same(memory: Memory, other: Memory) -> bool:
    here, there = ((each.agent_id, each.owner, each.workspace, each.kind, each.text) for each in (memory, other))
    return here == there


def _derive_id(memory: Memory, item: MemoryLine) -> MemoryId:
    """Return an id that is derived from the agent, the owner and the line."""
    said = (item.memory_id, memory.agent_id, memory.kind, memory.text, item.created_at)
    if memory.owner != LOCAL_USER:
        said = (*said, memory.owner)
    return f"mem_{hashlib.blake2b(msgspec.json.encode(said), digest_size=16).hexdigest()}"


def _to_utc(moment: datetime) -> datetime:
    """Return a time in UTC if it has no time zone."""
    return moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
