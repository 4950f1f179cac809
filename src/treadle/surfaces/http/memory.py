"""What agents remember."""

from datetime import UTC, datetime
from typing import Annotated

from litestar import Router, delete, get, post
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from msgspec import Meta, Struct

from treadle.domain.access import Principal
from treadle.domain.errors import UnknownAgent, UsageError
from treadle.domain.memories import MemoryKind
from treadle.domain.users import LONGEST_USER, UserId
from treadle.operations.memories import MOST_CHARACTERS, MemoryLine, line
from treadle.operations.memory_schemas import AssignBody, Pinning
from treadle.operations.schemas import Page
from treadle.ports.memory import Assigned
from treadle.surfaces.http.auth import principal_of
from treadle.surfaces.http.dependencies import Asked, served_of
from treadle.surfaces.http.openapi import asks
from treadle.surfaces.http.problems import Refusal

Limit = Annotated[int, QueryParameter(ge=1, le=500, description="How many.")]
Sought = Annotated[
    str | None, QueryParameter(name="query", max_length=10_000, description="Find what fits this text.")
]
OfUser = Annotated[
    str | None, QueryParameter(max_length=LONGEST_USER, description="Of this user; another with the scope admin.")
]
OLDEST = datetime.min.replace(tzinfo=UTC)


class NewMemory(Struct, frozen=True, forbid_unknown_fields=True):
    agent: Annotated[str, Meta(min_length=1, max_length=64)]
    text: Annotated[str, Meta(min_length=1, max_length=MOST_CHARACTERS)]
    kind: MemoryKind = "long_term"
    pinned: bool = False
    user: Annotated[str, Meta(min_length=1, max_length=LONGEST_USER)] | None = None
    """Of whom; null: of the token's user. Another can be named with the scope admin."""


class Kept(Struct, frozen=True):
    memory_id: str | None
    """Null: it was remembered already."""


@get("/v1/memory", **asks("read", "List or search memories", 404))
async def list_memories(
    request: Asked,
    agent: FromQuery[str | None] = None,
    kind: FromQuery[MemoryKind | None] = None,
    sought: Sought = None,
    limit: Limit = 50,
    user: OfUser = None,
) -> Page[MemoryLine]:
    """Newest first. With a query and an agent: what that agent recalls, best first. A token sees the memories of
    its user. A token with the scope `admin` sees those of all users, or of the named one."""
    principal, memory = principal_of(request), served_of(request).memory
    owner = user if principal.may("admin") else _own(user, principal)
    if agent is not None and not principal.sees(agent):
        raise UnknownAgent(f"No agent is called `{agent}`.")
    if sought is not None:
        if agent is None:
            raise UsageError("A search is for what one agent remembers: say which with ?agent=NAME.")
        recall = await memory.search(agent, sought, limit, "auto", owner)
        return Page(tuple(line(found.memory, agent) for found in recall.found))
    if agent is None and principal.agents is not None:
        found = [item for name in principal.agents for item in await memory.list(name, kind, limit, owner)]
        found.sort(key=lambda item: item.created_at or OLDEST, reverse=True)
        return Page(tuple(found[:limit]))
    return Page(tuple(await memory.list(agent, kind, limit, owner)))


@post("/v1/memory", status_code=201, **asks("run", "Add a memory", 404, 422))
async def add(data: JSONBody[NewMemory], request: Asked) -> Kept:
    served = served_of(request)
    if not principal_of(request).sees(data.agent) or data.agent not in served.home.agents():
        raise UnknownAgent(f"No agent is called `{data.agent}`.")
    if data.pinned and not principal_of(request).may("admin"):
        raise Refusal(403, "Forbidden", "Pinning a memory needs a token with the scope `admin`. Omit `pinned`.")
    owner = _own(data.user, principal_of(request))
    kept = await served.memory.add(data.agent, data.text, data.kind, data.pinned, owner)
    return Kept(None if kept is None else kept.memory_id)


@post("/v1/memory/assign", status_code=200, **asks("admin", "Assign memories to another user", 404, 422))
async def assign(data: JSONBody[AssignBody], request: Asked) -> Assigned:
    """Assigns the memories that match all filters. A fact that the user already has is merged."""
    return await served_of(request).memory.assign(data.user, data.memory_ids, data.agent, data.from_user)


@post("/v1/memory/{memory_id:str}/pin", status_code=200, **asks("admin", "Pin or unpin a memory", 404))
async def pin(memory_id: FromPath[str], data: JSONBody[Pinning], request: Asked) -> Pinning:
    """The score of a pinned memory does not decay."""
    await served_of(request).memory.pin(memory_id, data.pinned)
    return data


@delete("/v1/memory/{memory_id:str}", **asks("admin", "Delete a memory", 404))
async def forget(memory_id: FromPath[str], request: Asked) -> None:
    await served_of(request).memory.forget([memory_id])


def _own(named: UserId | None, principal: Principal) -> UserId:
    """The user whose memories are meant: the token's own, unless an administrator names another."""
    if named in (None, principal.user):
        return principal.user
    if not principal.may("admin"):
        raise Refusal(403, "Forbidden", f"The token `{principal.name}` lacks the scope `admin`. Omit `user`.")
    return named


ROUTES = Router("/", route_handlers=[list_memories, add, assign, pin, forget], tags=["memory"])
