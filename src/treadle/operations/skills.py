"""Skills of the home and of Treadle: read and approve them."""

from asyncio import to_thread
from typing import Annotated, TypeVar

from msgspec import Meta, Struct
from msgspec.structs import replace

from treadle.operations.context import Context
from treadle.operations.operation import NoParameters, Operation
from treadle.operations.schemas import Page
from treadle.operations.skill_approvals import SkillDetail, SkillView


class OneSkill(Struct, frozen=True, forbid_unknown_fields=True):
    name: str


class ApproveSkill(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$", description="The hash of the content that was read.")]


LIST = Operation("skills.list", "GET", "/v1/skills", scope="read", request=NoParameters, response=Page[SkillView])
SHOW = Operation(
    "skills.show", "GET", "/v1/skills/{name}", scope="read", request=OneSkill, response=SkillDetail, errors=(404,)
)
APPROVE = Operation(
    "skills.approve",
    "PUT",
    "/v1/skills/{name}/approval",
    scope="admin",
    request=ApproveSkill,
    response=SkillView,
    errors=(404,),
)
REVOKE = Operation(
    "skills.revoke",
    "DELETE",
    "/v1/skills/{name}/approval",
    scope="admin",
    request=OneSkill,
    response=type(None),
    errors=(404,),
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
