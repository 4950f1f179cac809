"""Applies the overrides of one run to its agent. A caller may lower limits; raising them requires the scope
`admin`."""

from fnmatch import fnmatchcase

from treadle.api.agent import RunOptions, apply_options
from treadle.domain.access import Principal
from treadle.domain.agents import AgentSpec, Limits
from treadle.domain.errors import UsageError
from treadle.domain.tools import COMMAND, COMMAND_ALIAS
from treadle.operations.refusal import Refusal, refuse_other_model
from treadle.operations.run_control import Overrides


def apply_overrides(overrides: Overrides | None, agent: AgentSpec, principal: Principal) -> AgentSpec:
    """Return the agent for one run. Raise UsageError for invalid overrides, and Refusal for more than is
    allowed."""
    if overrides is None:
        return agent
    if overrides.model is not None and not principal.may("admin"):
        refuse_other_model(overrides.model, agent)
    options = RunOptions()
    limits = dict(overrides.limits or {})
    if overrides.cost is not None:
        limits["cost"] = overrides.cost
    if limits:
        options["limits"] = limits
    if overrides.model is not None:
        options["model"] = overrides.model
    if overrides.deadline is not None:
        options["deadline"] = overrides.deadline
    if overrides.output is not None:
        options["output"] = overrides.output
    changed = apply_options(agent, options)
    if not principal.may("admin"):
        _refuse_more(agent, changed.limits)
    if overrides.tools is None:
        return changed
    missing = [tool for tool in overrides.tools if not any(_allows(tool, entry) for entry in agent.tools)]
    if missing:
        entry = f"Agent `{agent.name}` has no tool {', '.join(missing)}"
        raise UsageError(f"{entry}; a run may have fewer than its agent, never more.")
    return changed.with_tools(overrides.tools)


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
