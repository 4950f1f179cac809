"""Settings of an agent that one run overrides. Raising a limit requires the scope `admin`."""

from fnmatch import fnmatchcase
from typing import Any

import msgspec
from msgspec.structs import replace

from treadle.domain.access import Principal
from treadle.domain.agents import AgentSpec, Limits
from treadle.domain.errors import ConfigError, UsageError
from treadle.domain.settings import InvalidValue, check_struct
from treadle.domain.tools import COMMAND, COMMAND_ALIAS
from treadle.operations.refusal import Refusal, refuse_other_model
from treadle.operations.requested_run import Overrides


def apply_overrides(agent: AgentSpec, overrides: Overrides) -> AgentSpec:
    """Return the agent for one run. Raise ConfigError for a setting that an agent cannot have."""
    if overrides.settings is not None:
        agent = make_agent({**overrides.settings, "name": agent.name})
    limits = dict(overrides.limits or {})
    limits |= {"deadline": overrides.deadline} if overrides.deadline is not None else {}
    limits |= {"cost": overrides.cost} if overrides.cost is not None else {}
    changes: dict[str, Any] = {}
    if limits:
        changes["limits"] = list_limits(agent.limits) | limits
    if overrides.model is not None:
        changes |= {"model": overrides.model, "provider": None}
    if overrides.output is not None:
        changes["output"] = overrides.output
    changed = make_agent(msgspec.to_builtins(agent) | changes) if changes else agent
    return changed if overrides.tools is None else _select_tools(changed, overrides.tools)


def apply_permitted_overrides(agent: AgentSpec, overrides: Overrides, principal: Principal) -> AgentSpec:
    """Return the agent for one run of a caller. Raise Refusal for more than the caller may have, and UsageError for
    tools that the agent lacks."""
    may_raise = principal.may("admin")
    if overrides.settings is not None:
        if not may_raise:
            raise Refusal(403, "Forbidden", "Settings that are not saved require the scope `admin`.")
        return apply_overrides(agent, overrides)
    if overrides.model is not None and not may_raise:
        refuse_other_model(overrides.model, agent)
    changed = apply_overrides(agent, overrides)
    if not may_raise:
        _refuse_more(agent, changed.limits)
    missing = [tool for tool in overrides.tools or () if not any(_allows(tool, entry) for entry in agent.tools)]
    if missing:
        entry = f"Agent `{agent.name}` has no tool {', '.join(missing)}"
        raise UsageError(f"{entry}; a run may have fewer than its agent, never more.")
    return changed


def make_agent(settings: dict[str, Any]) -> AgentSpec:
    """Return an agent with settings as plain values. Raise ConfigError for a setting that an agent cannot have."""
    try:
        values = {name: value for name, value in msgspec.to_builtins(settings).items() if value != {}}
        return check_struct(values, AgentSpec)
    except InvalidValue as error:
        raise ConfigError(f"agent `{settings['name']}`: {error}") from None


def list_limits(limits: Limits) -> dict[str, Any]:
    """Return all limits, including defaults."""
    return {name: getattr(limits, name) for name in limits.__struct_fields__}


def _select_tools(agent: AgentSpec, tools: tuple[str, ...]) -> AgentSpec:
    changed = agent.with_tools(tools)
    if agent.memory.scope is None and tools != agent.tools:  # fewer tools must not widen recall
        changed = replace(changed, memory=replace(agent.memory, scope="workspace"))
    return changed


def _allows(tool: str, entry: str) -> bool:
    """Return whether an entry of an allowlist allows a tool."""
    names = (COMMAND, COMMAND_ALIAS) if tool in (COMMAND, COMMAND_ALIAS) else (tool,)
    return any(fnmatchcase(name, entry) for name in names)


def _refuse_more(agent: AgentSpec, limits: Limits) -> None:
    """Raise Refusal if a run would exceed the limits of its agent."""
    for name in Limits.__struct_fields__:
        allowed, requested = _limit_number(agent.limits, name), _limit_number(limits, name)
        if allowed is not None and (requested is None or requested > allowed):
            raise Refusal(
                403,
                "AboveTheLimit",
                f"Agent `{agent.name}` has limits.{name} {allowed:g}, which a run can only lower. Lower the "
                "value, or use a token with the scope `admin`.",
            )


def _limit_number(limits: Limits, name: str) -> float | None:
    return limits.deadline_seconds if name == "deadline" else getattr(limits, name)
