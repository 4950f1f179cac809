"""Which model answers: found when a worker takes a run up, and again when another takes over."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from treadle.core.retry import fallback_after
from treadle.core.routing import Route, route
from treadle.core.state import RunState
from treadle.domain.errors import UsageError
from treadle.domain.events import EventData, LlmError, ModelResolved, RunStart
from treadle.domain.lineage import Lineage
from treadle.engine.deps import EngineDeps
from treadle.engine.owned_run import OwnedRun
from treadle.ports.model import Resolved
from treadle.ports.skills import Skill
from treadle.ports.tool import Toolbox

LOAD_SKILL = "load_skill"
"""The tool that every agent has that has skills."""


class MissingDependency(Struct, frozen=True):
    """Something that the run needs and this engine does not have."""

    what: str


CLIENT_INSTRUCTIONS_HEADING = (
    "Whoever sends the messages asks for this too, as far as it agrees with what stands above:"
)


async def resolve_model(log: OwnedRun, deps: EngineDeps) -> Resolved | MissingDependency:
    """Find the model that answers and, the first time, the tools that may be called."""
    state = log.state
    if state.cancelled is not None or state.suspicion.is_culprit:
        return MissingDependency("nothing: it is about to end")
    try:
        model, news = await _find_model(state, deps)
        start = _make_start(state, deps)
    except UsageError as error:
        return MissingDependency(str(error))
    log.record(*start, *news)
    return model


async def switch_model(log: OwnedRun, deps: EngineDeps) -> Resolved | MissingDependency:
    """After a fallback: the first of those that are left which is to be had."""
    while True:
        try:
            model, news = await _find_model(log.state, deps)
        except UsageError as error:
            following = fallback_after(log.state, str(error))
            if following is None:
                log.record(_no_fallback_left(log.state, error))
                return MissingDependency(str(error))
            log.record(following)
        else:
            log.record(*news)
            return model


def has_alternative(model: Resolved, state: RunState, deps: EngineDeps) -> bool:
    """Whether the name that the run goes by stands for another model now, as an alias of several may."""
    try:
        found = _resolve(_current_route(state).model, state, deps)
    except UsageError:
        return False
    return (found.provider, found.model) != (model.provider, model.model)


def _no_fallback_left(state: RunState, error: UsageError) -> LlmError:
    """The failure that made the run fall back, and why nobody could take over."""
    message = f"{state.fallback_reason} No fallback could take over: {error}"
    return LlmError(state.step.number, state.step.attempts, "not_found", message, retryable=False)


async def _find_model(state: RunState, deps: EngineDeps) -> tuple[Resolved, tuple[EventData, ...]]:
    """The model that the run asks, and what is put on record where it is another one than before, or where its
    server says now how large its context window is."""
    wanted, known = _current_route(state), state.model
    found, is_told = await _with_window(_resolve(wanted.model, state, deps))
    is_known = known and (known.provider, known.model, known.route) == (found.provider, found.model, wanted.model)
    if known and is_known and (not is_told or known.context_window == found.profile.context_window):
        return found, ()
    reason = "; ".join(filter(None, (wanted.reason, found.reason)))
    profile = msgspec.structs.replace(found.profile, prices=None)
    window, route = profile.context_window, wanted.model
    return found, (ModelResolved(found.provider, found.model, found.api_mode, reason, route, window, profile),)


async def _with_window(found: Resolved) -> tuple[Resolved, bool]:
    """The model with the context window that its server states, and whether it states one."""
    window = None if found.ask_window is None else await found.ask_window()
    if window is None:
        return found, False
    return msgspec.structs.replace(
        found, profile=msgspec.structs.replace(found.profile, context_window=window)
    ), True


def _resolve(name: str, state: RunState, deps: EngineDeps) -> Resolved:
    provider = state.agent.provider if name == state.agent.model else None  # others name their own
    return deps.models.resolve(name, provider)


def _current_route(state: RunState) -> Route:
    """What the run was routed to, once it has been; a fallback, once it fell back."""
    if not state.route:
        return route(state)
    return Route(state.route, "a fallback" if state.fallbacks_used else "")


def _make_start(state: RunState, deps: EngineDeps) -> tuple[RunStart, ...]:
    """What a run begins with: its tools, those of its skills, and what its system prompt has beside the persona.
    Raises UsageError where a tool is gone that it has begun with."""
    if state.started:
        for name in {spec.name for spec in state.tools.values()}:
            if deps.tools.find(name) is None:
                raise UsageError(f"The run needs the tool `{name}`, which this engine does not have. Add it.")
        return ()
    around, agent = deps.surroundings, state.agent
    skills = around.skills(agent) if agent.skills else ()
    allowed = list_allowed_tools(agent.tools, skills, deps.tools)
    workspace = around.workspace(agent)
    kept = state.kept_notes
    notes = kept[1] if kept is not None and kept[0] == workspace else around.notes(agent)
    wanted = f"{CLIENT_INSTRUCTIONS_HEADING}\n{state.instructions}" if state.instructions else ""
    sections = (around.rules(), around.catalog(skills) if skills else "", wanted)
    tools = tuple([tool.spec for tool in deps.tools.select(allowed) if may_use_tool(state.lineage, tool.spec.name)])
    said = tuple([section for section in sections if section])
    guidance = around.guidance(agent, tools)
    return (RunStart(tools, said, notes, workspace if notes else "", guidance, "short"),)


def may_use_tool(lineage: Lineage | None, tool: str) -> bool:
    """Whether a run may have a tool: a child has none that its parent has not. What a skill says is no right."""
    return lineage is None or tool in lineage.tools or (tool == LOAD_SKILL and not lineage.judges)


def list_allowed_tools(tools: Sequence[str], skills: Sequence[Skill], known: Toolbox) -> Sequence[str]:
    """What an agent may call: its own tools, and those that its skills bring, as far as there are such."""
    if not skills:
        return tools
    brought = [name for skill in skills for name in skill.tools if known.find(name) is not None]
    return (*tools, LOAD_SKILL, *brought)
