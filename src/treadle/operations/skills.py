"""Skills of the home and of Treadle: read and approve them."""

from asyncio import to_thread
from collections.abc import Sequence
from typing import Annotated, Literal, Protocol, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from treadle.operations.context import Context
from treadle.operations.operation import NoParameters, Operation
from treadle.operations.schemas import Page


class SkillView(Struct, frozen=True):
    """A skill."""

    name: str
    origin: Literal["home", "workspace", "treadle"]
    state: Literal["approved", "changed", "new", "available", "broken", "missing"]
    """changed: since it was approved. available: it comes with Treadle, and approving it copies it into the home.
    missing: it is approved, but its folder is gone."""
    description: str = ""
    reason: str = ""
    """Why it is broken."""
    path: str = ""
    """Its folder. Empty for callers without the scope admin."""
    tools: tuple[str, ...] = ()
    """The tools that an agent gets with it."""
    acting_tools: tuple[str, ...] = ()
    """Those of them that do more than read."""
    unknown_tools: tuple[str, ...] = ()
    """Names that it requests and that no tool has."""
    asks_for: tuple[str, ...] = ()
    """All tools that it requests. A skill of a workspace gets none of them."""
    sha256: str = ""


class SkillFileView(Struct, frozen=True):
    """A file of a skill."""

    path: str
    bytes: int
    executable: bool
    text: str | None
    """Null: it is not text."""


class SkillDetail(SkillView, frozen=True):
    """A skill with its files."""

    files: tuple[SkillFileView, ...] = ()


class SkillApprovals(Protocol):
    """The skills of a home. Its methods block."""

    def list(self) -> Sequence[SkillView]: ...

    def show(self, name: str) -> SkillDetail: ...

    def approve(self, name: str, sha256: str) -> SkillView:
        """Approve the content that has this hash. Raise UsageError if the skill has another content now."""
        ...

    def revoke(self, name: str) -> None: ...


class OneSkill(Struct, frozen=True, forbid_unknown_fields=True):
    name: str


class ApproveSkill(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$", description="The hash of the content that was read.")]


LIST = Operation("skills.list", "GET", "/v1/skills", scope="read", request=NoParameters, response=Page[SkillView])
SHOW = Operation(
    "skills.show", "GET", "/v1/skills/{name}", scope="read", request=OneSkill, response=SkillDetail, errors=(422,)
)
APPROVE = Operation(
    "skills.approve",
    "PUT",
    "/v1/skills/{name}/approval",
    scope="admin",
    request=ApproveSkill,
    response=SkillView,
    errors=(422,),
)
REVOKE = Operation(
    "skills.revoke",
    "DELETE",
    "/v1/skills/{name}/approval",
    scope="admin",
    request=OneSkill,
    response=type(None),
    errors=(422,),
)


_Skill = TypeVar("_Skill", bound=SkillView)


def _hide_path(skill: _Skill, context: Context) -> _Skill:
    return skill if context.principal.may("admin") else replace(skill, path="")


@LIST.handler
async def list_skills(context: Context, request: NoParameters) -> Page[SkillView]:
    """List the skills of the home and those that come with Treadle."""
    found = await to_thread(context.skills.list)
    return Page(tuple([_hide_path(skill, context) for skill in found]))


@SHOW.handler
async def show_skill(context: Context, request: OneSkill) -> SkillDetail:
    """Get a skill with the text of its files."""
    return _hide_path(await to_thread(context.skills.show, request.name), context)


@APPROVE.handler
async def approve_skill(context: Context, request: ApproveSkill) -> SkillView:
    """Approve the content of a skill.

    `sha256` is the hash of the content that the reviewer has read. A changed skill needs a new approval."""
    return await to_thread(context.skills.approve, request.name, request.sha256)


@REVOKE.handler
async def revoke_skill(context: Context, request: OneSkill) -> None:
    """Revoke the approval of a skill."""
    await to_thread(context.skills.revoke, request.name)
