"""Agents: their settings, and whether they accept messages."""

from contextlib import suppress
from typing import TYPE_CHECKING, Any

import msgspec
from msgspec import Struct

from treadle.domain.agents import AgentSpec
from treadle.domain.errors import ConfigError, UsageError
from treadle.operations.context import Context
from treadle.operations.operation import NoParameters, Operation
from treadle.operations.refusal import Refusal
from treadle.operations.schemas import Page
from treadle.ports.accounts import AgentState

if TYPE_CHECKING:
    from treadle.operations.agent_version_service import Change


class AgentView(Struct, frozen=True):
    """An agent with all its settings, and whether it accepts messages."""

    agent: AgentSpec
    state: str = "running"


class OneAgent(Struct, frozen=True, forbid_unknown_fields=True):
    name: str


class CreateAgent(Struct, frozen=True, forbid_unknown_fields=True):
    settings: dict[str, Any]


class ChangeAgent(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    settings: dict[str, Any]


class SetState(Struct, frozen=True, forbid_unknown_fields=True):
    name: str
    state: AgentState


LIST = Operation("agents.list", "GET", "/v1/agents", scope="read", request=NoParameters, response=Page[AgentView])
SHOW = Operation(
    "agents.show", "GET", "/v1/agents/{name}", scope="read", request=OneAgent, response=AgentView, errors=(404,)
)
CREATE = Operation(
    "agents.create",
    "POST",
    "/v1/agents",
    scope="admin",
    request=CreateAgent,
    response=AgentView,
    status=201,
    errors=(409, 422),
    whole_body="settings",
    body_schema=AgentSpec,
)
CHANGE = Operation(
    "agents.change",
    "PUT",
    "/v1/agents/{name}",
    scope="admin",
    request=ChangeAgent,
    response=AgentView,
    errors=(404, 409),
    whole_body="settings",
    body_schema=AgentSpec,
)
DELETE = Operation(
    "agents.delete",
    "DELETE",
    "/v1/agents/{name}",
    scope="admin",
    request=OneAgent,
    response=type(None),
    errors=(404,),
)
SET_STATE = Operation(
    "agents.set_state",
    "POST",
    "/v1/agents/{name}/state",
    scope="admin",
    request=SetState,
    response=AgentView,
    errors=(404, 422),
)


@LIST.handler
async def list_agents(context: Context, request: NoParameters) -> Page[AgentView]:
    """List agents.

    Agents whose files cannot be read are left out."""
    views: list[AgentView] = []
    for name in context.agents.names():
        if context.principal.sees(name):
            with suppress(ConfigError):
                views.append(await _view(context, context.agents.find(name)))
    return Page(tuple(views))


@SHOW.handler
async def show_agent(context: Context, request: OneAgent) -> AgentView:
    """Get an agent with its settings.

    They include the rules that were added by approving a call permanently."""
    return await _view(context, context.visible_agent(request.name))


@CREATE.handler
async def create_agent(context: Context, request: CreateAgent) -> AgentView:
    """Create an agent."""
    _spec(request.settings)
    return await _put(context, request.settings, new=True)


@CHANGE.handler
async def change_agent(context: Context, request: ChangeAgent) -> AgentView:
    """Change an agent.

    The body has all its settings. They apply from its next run on."""
    name = _spec(request.settings).name
    if name != request.name:
        raise UsageError(
            f"The agent is called `{request.name}`, and its settings say `{name}`: they must be the same."
        )
    with suppress(ConfigError):  # an invalid file has no version
        await context.versions().current(name)
    return await _put(context, request.settings, new=False)


@DELETE.handler
async def delete_agent(context: Context, request: OneAgent) -> None:
    """Delete an agent.

    Only its settings are deleted. Its sessions, its memories and its versions stay: restoring a version creates it
    again."""
    with suppress(ConfigError):
        await context.versions().current(request.name)
    context.agents.delete(request.name)
    await context.versions().record_deletion(request.name, _change(context))


@SET_STATE.handler
async def set_state(context: Context, request: SetState) -> AgentView:
    """Start, pause or stop an agent.

    An agent that is paused or stopped accepts no messages. Runs in progress continue."""
    agent = context.visible_agent(request.name)
    await context.service.set_agent_state(request.name, request.state)
    return await _view(context, agent)


def _spec(settings: dict[str, Any]) -> AgentSpec:
    """Return settings as an agent. What they misspell is found when they are written."""
    try:
        return msgspec.convert(settings, AgentSpec)
    except msgspec.ValidationError as error:
        raise Refusal(400, "BadRequest", f"the body: {error}") from None


async def _put(context: Context, settings: dict[str, Any], *, new: bool) -> AgentView:
    agent = context.agents.put(settings, new=new)
    await context.versions().current(agent.name, _change(context))
    return await _view(context, agent)


def _change(context: Context) -> "Change":
    from treadle.operations.agent_version_service import Change  # not needed to list agents

    return Change(context.resolve_signer(), "api")


async def _view(context: Context, agent: AgentSpec) -> AgentView:
    return AgentView(agent, await context.service.agent_state(agent.name))
