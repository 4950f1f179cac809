"""Agents, and whether they take messages."""

from contextlib import suppress
from typing import Any

import msgspec
from litestar import Router, delete, get, post, put
from litestar.params import FromPath, JSONBody
from msgspec import Struct

from treadle.domain.agents import AgentSpec
from treadle.domain.errors import ConfigError, UsageError
from treadle.operations.schemas import AgentView, Page
from treadle.ports.accounts import AgentState
from treadle.surfaces.http.auth import principal_of
from treadle.surfaces.http.dependencies import Asked, seen_agent, served_of
from treadle.surfaces.http.openapi import asks


class StateBody(Struct, frozen=True, forbid_unknown_fields=True):
    state: AgentState


@get("/v1/agents", **asks("read", "List agents"))
async def list_agents(request: Asked) -> Page[AgentView]:
    """Agents with an invalid file are left out."""
    served, principal = served_of(request), principal_of(request)
    views: list[AgentView] = []
    for name in served.home.agents():
        if principal.sees(name):
            with suppress(ConfigError):
                views.append(await _view(served.agents.find(name), request))
    return Page(tuple(views))


@get("/v1/agents/{name:str}", **asks("read", "Get an agent with its settings", 404))
async def show(name: FromPath[str], request: Asked) -> AgentView:
    """Includes the rules in `allowed.yaml`, which reviewers have added."""
    return await _view(seen_agent(name, request), request)


@post("/v1/agents", status_code=201, **asks("admin", "Create an agent", 409, 422))
async def create(data: JSONBody[AgentSpec], request: Asked) -> AgentView:
    return await _view(served_of(request).home.put_agent(await _settings(request), new=True), request)


@put("/v1/agents/{name:str}", **asks("admin", "Replace the settings of an agent", 404, 409))
async def change(name: FromPath[str], data: JSONBody[AgentSpec], request: Asked) -> AgentView:
    """The body holds all settings. They apply from the next run on."""
    if data.name != name:
        raise UsageError(
            f"The agent is called `{name}`, and its settings say `{data.name}`: they must be the same."
        )
    return await _view(served_of(request).home.put_agent(await _settings(request), new=False), request)


@delete("/v1/agents/{name:str}", **asks("admin", "Delete an agent", 404))
async def remove(name: FromPath[str], request: Asked) -> None:
    """Deletes the settings. The journals of its runs are kept."""
    served_of(request).home.delete_agent(name)


@post(
    "/v1/agents/{name:str}/state",
    status_code=200,
    **asks("admin", "Start, pause or stop an agent", 404, 422),
)
async def set_state(name: FromPath[str], data: JSONBody[StateBody], request: Asked) -> AgentView:
    """A paused or stopped agent accepts no messages. Runs in progress continue."""
    agent = seen_agent(name, request)
    await served_of(request).service.set_agent_state(name, data.state)
    return await _view(agent, request)


async def _settings(request: Asked) -> dict[str, Any]:
    """The settings in a body as they were sent: what is misspelt in them is refused, as it is in a file."""
    return msgspec.json.decode(await request.body())


async def _view(agent: AgentSpec, request: Asked) -> AgentView:
    return AgentView(agent, await served_of(request).service.agent_state(agent.name))


ROUTES = Router("/", route_handlers=[list_agents, show, create, change, remove, set_state], tags=["agents"])
