"""Memories: what agents remember."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated

from msgspec import Meta, Struct
from msgspec.structs import replace

from treadle.domain.errors import UnknownAgent, UsageError
from treadle.domain.memories import Memory, MemoryId, MemoryKind
from treadle.domain.users import LOCAL_USER, MAX_USER_CHARACTERS, UserId
from treadle.domain.workspaces import NO_WORKSPACE, WorkspaceId
from treadle.operations.context import Context
from treadle.operations.memory_lines import MAX_CHARACTERS, Imported, MemoryLine, line
from treadle.operations.operation import Operation
from treadle.operations.refusal import Refusal, check_workspace_name
from treadle.operations.schemas import AgentName, Limit, Page, WorkspaceName
from treadle.ports.memory import Assigned, Assignment

OLDEST = datetime.min.replace(tzinfo=UTC)
UserName = Annotated[str, Meta(min_length=1, max_length=MAX_USER_CHARACTERS)]


class SavedMemory(Struct, frozen=True):
    memory_id: str | None
    """Null: the agent remembered it already."""


# ── Requests ───────────────────────────────────────────────────────────────────────────────────────


class ListMemories(Struct, frozen=True, forbid_unknown_fields=True):
    agent: str | None = None
    kind: MemoryKind | None = None
    query: Annotated[str, Meta(max_length=10_000, description="Find memories that fit this text.")] | None = None
    limit: Limit = 50
    user: (
        Annotated[
            str, Meta(max_length=MAX_USER_CHARACTERS, description="Of this user; another with the scope admin.")
        ]
        | None
    ) = None
    workspace: WorkspaceName | None = None


class AddMemory(Struct, frozen=True, forbid_unknown_fields=True):
    agent: AgentName
    text: Annotated[str, Meta(min_length=1, max_length=MAX_CHARACTERS)]
    kind: MemoryKind = "long_term"
    pinned: bool = False
    user: UserName | None = None
    """Its owner; null: the token's user. Another can be named with the scope admin."""
    workspace: WorkspaceName | None = None
    """Its workspace; null: that of the agent. Another can be named with the scope admin."""


class AssignMemories(Struct, frozen=True, forbid_unknown_fields=True):
    """Which memories are given to which user or workspace: those that match everything else that is not null."""

    user: UserName | None = None
    """Who owns them from now on; null: each keeps its owner."""
    memory_ids: Annotated[tuple[str, ...], Meta(min_length=1, max_length=10_000)] | None = None
    agent: AgentName | None = None
    from_user: UserName | None = None
    """Who owns them now."""
    workspace: WorkspaceName | None = None
    """Their workspace from now on; null: each keeps its workspace. Without ids and `from_workspace`, only memories
    without a workspace get one."""
    from_workspace: WorkspaceName | None = None
    """Their workspace now."""


class Pinned(Struct, frozen=True):
    pinned: bool = True
    """False: the memory is no longer pinned."""


class PinMemory(Struct, frozen=True, forbid_unknown_fields=True):
    memory_id: MemoryId
    pinned: bool = True
    """False: unpin it."""


class OneMemory(Struct, frozen=True, forbid_unknown_fields=True):
    memory_id: MemoryId


class SaveMemory(Struct, frozen=True, forbid_unknown_fields=True):
    """A memory that the owner of the home adds, for any agent and user."""

    agent: str
    text: str
    kind: MemoryKind = "long_term"
    pinned: bool = False
    user: UserId = LOCAL_USER
    workspace: WorkspaceId = NO_WORKSPACE


class ForgetMemories(Struct, frozen=True, forbid_unknown_fields=True):
    memory_ids: list[MemoryId]


class ImportMemories(Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a file of memories."""

    data: bytes
    agent: str | None = None
    known_agents: tuple[str, ...] = ()
    user: UserId | None = None


# ── Operations ─────────────────────────────────────────────────────────────────────────────────────

LIST = Operation(
    "memory.list",
    "GET",
    "/v1/memory",
    scope="read",
    request=ListMemories,
    response=Page[MemoryLine],
    errors=(404,),
)
ADD = Operation(
    "memory.add",
    "POST",
    "/v1/memory",
    scope="run",
    request=AddMemory,
    response=SavedMemory,
    status=201,
    errors=(404, 422),
)
ASSIGN = Operation(
    "memory.assign",
    "POST",
    "/v1/memory/assign",
    scope="admin",
    request=AssignMemories,
    response=Assigned,
    errors=(404, 422),
)
PIN = Operation(
    "memory.pin",
    "POST",
    "/v1/memory/{memory_id}/pin",
    scope="admin",
    request=PinMemory,
    response=Pinned,
    errors=(404,),
)
FORGET = Operation(
    "memory.forget",
    "DELETE",
    "/v1/memory/{memory_id}",
    scope="admin",
    request=OneMemory,
    response=type(None),
    errors=(404,),
)
SAVE = Operation(
    "memory.save",
    "POST",
    "/v1/attached/memory",
    scope="admin",
    request=SaveMemory,
    response=list[Memory],
    public=False,
)
FIND = Operation(
    "memory.find",
    "GET",
    "/v1/attached/memory/{memory_id}",
    scope="admin",
    request=OneMemory,
    response=Memory,
    public=False,
)
FORGET_SEVERAL = Operation(
    "memory.forget_several",
    "POST",
    "/v1/attached/memory/forget",
    scope="admin",
    request=ForgetMemories,
    response=list[Memory],
    public=False,
    whole_body="memory_ids",
)
IMPORT = Operation(
    "memory.import",
    "POST",
    "/v1/attached/memory/import",
    scope="admin",
    request=ImportMemories,
    response=Imported,
    public=False,
)


@LIST.handler
async def list_memories(context: Context, request: ListMemories) -> Page[MemoryLine]:
    """List or search memories.

    The newest first; or, with a query and an agent, what that agent would recall, the best first. They are those of
    the token's user. With the scope admin they are those of all users, or of the one that is named."""
    principal, memory, agent = context.principal, context.memory, request.agent
    owner = request.user if principal.may("admin") else _owner(context, request.user)
    if agent is not None and not principal.sees(agent):
        raise UnknownAgent(f"No agent is called `{agent}`.")
    check_workspace_name(request.workspace, principal)
    if request.query is not None:
        if agent is None:
            raise UsageError("A search needs an agent: add ?agent=NAME.")
        recall = await memory.search(agent, request.query, request.limit, "auto", owner, request.workspace)
        return _make_page(context, [line(found.memory, agent) for found in recall.found])
    wanted = (request.kind, request.limit, owner, request.workspace)
    if agent is None and principal.agents is not None:
        found = [item for name in principal.agents for item in await memory.list(name, *wanted)]
        found.sort(key=lambda item: item.created_at or OLDEST, reverse=True)
        return _make_page(context, found[: request.limit])
    return _make_page(context, await memory.list(agent, *wanted))


def _make_page(context: Context, lines: Sequence[MemoryLine]) -> Page[MemoryLine]:
    """Return memories as the caller may see them: only an administrator sees folders of the machine."""
    if context.principal.may("admin"):
        return Page(tuple(lines))
    return Page(tuple([replace(each, workspace=NO_WORKSPACE) for each in lines]))


@ADD.handler
async def add_memory(context: Context, request: AddMemory) -> SavedMemory:
    """Add a memory."""
    if not context.principal.sees(request.agent) or request.agent not in context.agents.names():
        raise UnknownAgent(f"No agent is called `{request.agent}`.")
    if request.pinned and not context.principal.may("admin"):
        raise Refusal(
            403, "Forbidden", "Pinning a memory needs a token with the scope `admin`. Leave `pinned` out."
        )
    context.refuse_anonymous()
    owner = _owner(context, request.user)
    check_workspace_name(request.workspace, context.principal)
    workspace = request.workspace or context.service.identify(context.agents.find(request.agent)).id
    saved = await context.memory.add(request.agent, request.text, request.kind, request.pinned, owner, workspace)
    return SavedMemory(None if saved is None else saved.memory_id)


@ASSIGN.handler
async def assign_memories(context: Context, request: AssignMemories) -> Assigned:
    """Give memories to another user or workspace.

    Those that match everything else that is named. A fact that the user already has with that agent there is merged
    with it."""
    wanted = Assignment(
        owner=request.user,
        memory_ids=request.memory_ids,
        before=request.from_user,
        workspace=request.workspace,
        before_workspace=request.from_workspace,
    )
    return await context.memory.assign(wanted, request.agent)


@PIN.handler
async def pin_memory(context: Context, request: PinMemory) -> Pinned:
    """Pin a memory, so that age does not lower its rank.

    With `pinned` false, it is unpinned."""
    await context.memory.pin(request.memory_id, request.pinned)
    return Pinned(request.pinned)


@FORGET.handler
async def forget_memory(context: Context, request: OneMemory) -> None:
    """Delete a memory."""
    await context.memory.forget([request.memory_id])


@SAVE.handler
async def save_memory(context: Context, request: SaveMemory) -> list[Memory]:
    """Add a memory for any agent and user; the list is empty where the agent remembered it already."""
    kept = await context.memory.add(
        request.agent, request.text, request.kind, request.pinned, request.user, request.workspace
    )
    return [] if kept is None else [kept]


@FIND.handler
async def find_memory(context: Context, request: OneMemory) -> Memory:
    """Get a memory."""
    return await context.memory.find(request.memory_id)


@FORGET_SEVERAL.handler
async def forget_memories(context: Context, request: ForgetMemories) -> list[Memory]:
    """Delete memories, all or none of them."""
    return list(await context.memory.forget(request.memory_ids))


@IMPORT.handler
async def import_memories(context: Context, request: ImportMemories) -> Imported:
    """Add the memories of a file."""
    return await context.memory.import_lines(request.data, request.agent, request.known_agents, request.user)


def _owner(context: Context, named: UserId | None) -> UserId:
    """Return the user whose memories are meant: the caller's own, unless an administrator names another."""
    principal = context.principal
    if named in (None, principal.user):
        return principal.user
    if not principal.may("admin"):
        raise Refusal(403, "Forbidden", f"The token `{principal.name}` lacks the scope `admin`. Leave out `user`.")
    return named
