"""Choice of the model: when a worker claims a run, and again when a fallback takes over."""

from collections.abc import Sequence

import msgspec
from msgspec import Struct

from treadle.core.context.small_models import fit_agent
from treadle.core.retry import plan_fallback
from treadle.core.routing import Route, choose_route
from treadle.core.state import RunState
from treadle.core.tools.search import exceeds_share
from treadle.domain.agents import AgentSpec
from treadle.domain.client_tools import make_client_specs
from treadle.domain.errors import UsageError
from treadle.domain.events import EventData, LlmError, ModelResolved, RunStart
from treadle.domain.lineage import Lineage
from treadle.domain.models import Profile
from treadle.domain.tools import ToolSpec
from treadle.engine.deps import ModelDeps
from treadle.engine.owned_run import OwnedRun
from treadle.engine.session_tools import keep_offered_tools
from treadle.ports.model import Resolved
from treadle.ports.skills import Skill
from treadle.ports.tool import Toolbox

LOAD_SKILL = "load_skill"
"""The tool that every agent with skills has."""
SEARCH_TOOLS = ("find_tools", "call_tool")
"""The tools of a run that has hidden tools."""


class MissingDependency(Struct, frozen=True):
    """Something that the run needs and this engine lacks."""

    what: str


CLIENT_INSTRUCTIONS_HEADING = (
    "The client that sends the messages adds these instructions. Follow them where they agree with the rules above:"
)


async def resolve_model(run: OwnedRun, deps: ModelDeps) -> Resolved | MissingDependency:
    """Return the model for the run. On the first claim, also record the run's tools and prompt sections."""
    state = run.state
    if state.cancelled is not None or state.guards.suspicion.is_culprit:
        return MissingDependency("nothing: it is about to end")
    try:
        model, events = await _find_model(state, deps)
        start = await _make_start(run, deps, model.profile)
    except UsageError as error:
        return MissingDependency(str(error))
    run.record(*start, *events)
    return model


async def switch_model(run: OwnedRun, deps: ModelDeps) -> Resolved | MissingDependency:
    """Return the first available model after a fallback."""
    while True:
        try:
            model, events = await _find_model(run.state, deps)
        except UsageError as error:
            fallback = plan_fallback(run.state, str(error), "unresolved")
            if fallback is None:
                run.record(_make_no_fallback_error(run.state, error))
                return MissingDependency(str(error))
            run.record(fallback)
        else:
            run.record(*events)
            return model


def has_alternative(model: Resolved, state: RunState, deps: ModelDeps) -> bool:
    """Return whether the run's model name, if it is an alias of several models, resolves to another one now."""
    try:
        resolved = _resolve(_find_current_route(state).model, state, deps)
    except UsageError:
        return False
    return (resolved.provider, resolved.model) != (model.provider, model.model)


def _make_no_fallback_error(state: RunState, error: UsageError) -> LlmError:
    """Return the failure that caused the fallback, with the reason why no fallback was available."""
    message = f"{state.attempts.fallback_reason} No fallback could take over: {error}"
    return LlmError(
        state.step.number, state.step.attempts, "not_found", message, retryable=False, no_fallback=str(error)
    )


async def _find_model(state: RunState, deps: ModelDeps) -> tuple[Resolved, tuple[EventData, ...]]:
    """Return the run's model, and an event if it differs from before or if its server reports another context
    window."""
    route, known = _find_current_route(state), state.model
    resolved, is_reported = await _query_window(_resolve(route.model, state, deps))
    is_known = known and (known.provider, known.model, known.route) == (
        resolved.provider,
        resolved.model,
        route.model,
    )
    if known and is_known and (not is_reported or known.context_window == resolved.profile.context_window):
        return resolved, ()
    reason = "; ".join(filter(None, (route.reason, resolved.reason)))
    profile = msgspec.structs.replace(resolved.profile, prices=None)
    event = ModelResolved(
        provider=resolved.provider,
        model=resolved.model,
        api_mode=resolved.api_mode,
        reason=reason,
        route=route.model,
        context_window=profile.context_window,
        profile=profile,
        choice=route.choice,
        complexity=route.complexity,
        resolution=resolved.reason if route.reason else "",
    )
    return resolved, (event,)


async def _query_window(resolved: Resolved) -> tuple[Resolved, bool]:
    """Return the model with the context window that its server reports, and whether it reports one."""
    window = None if resolved.query_window is None else await resolved.query_window()
    if window is None:
        return resolved, False
    return msgspec.structs.replace(
        resolved, profile=msgspec.structs.replace(resolved.profile, context_window=window)
    ), True


def _resolve(name: str, state: RunState, deps: ModelDeps) -> Resolved:
    provider = state.agent.provider if name == state.agent.model else None  # other names bring their own provider
    return deps.models.resolve(name, provider)


def _find_current_route(state: RunState) -> Route:
    """Return the model that the run was routed to, or the current fallback."""
    if not state.attempts.route:
        return choose_route(state)
    if not state.attempts.fallbacks_used:
        return Route(state.attempts.route, "")
    return Route(state.attempts.route, "a fallback", "fallback")


async def _make_start(run: OwnedRun, deps: ModelDeps, profile: Profile) -> tuple[RunStart, ...]:
    """Return the start of a run: its tools, those of its skills, and the sections of its system prompt after the
    persona.

    Raise UsageError if a run that has started needs a tool that is missing."""
    state = run.state
    if state.has_started:
        for name in {spec.name for spec in state.tools.values() if spec.client is None}:
            if deps.tools.find(name, state.agent) is None:
                raise UsageError(f"The run needs the tool `{name}`, which this engine does not have. Add it.")
        return ()
    context, agent = deps.agent_context, fit_agent(state.agent, profile)
    skills = context.skills(agent) if agent.skills else ()
    allowed = list_allowed_tools(agent.tools, skills, deps.tools)
    workspace = context.workspace(agent)
    notes = _find_notes(state, workspace, agent, deps)
    route = f"{CLIENT_INSTRUCTIONS_HEADING}\n{state.prompt.instructions}" if state.prompt.instructions else ""
    sections = (context.rules(), context.catalog(skills) if skills else "", route)
    tools = _select_tools(allowed, agent, state, deps)
    withheld = () if agent.tools == state.agent.tools else _select_tools(state.agent.tools, agent, state, deps)
    offered = await keep_offered_tools(_choose_patch_forms(tools, profile, deps), run)
    tools = _add_client_tools(_hide_tools(offered, state, profile.context_window, deps), state)
    start = RunStart(
        tools,
        sections=tuple([section for section in sections if section]),
        notes=notes,
        workspace=workspace if notes else "",
        guidance=context.guidance(agent, tools),
        withheld=tuple([spec.name for spec in withheld if spec not in tools]),
        persona=None if agent.persona == state.agent.persona else agent.persona,
        recall=None if agent.memory == state.agent.memory else agent.memory.recall,
    )
    return (start,)


def _select_tools(
    allowed: Sequence[str], agent: AgentSpec, state: RunState, deps: ModelDeps
) -> tuple[ToolSpec, ...]:
    selected = [tool.spec for tool in deps.tools.select(allowed, agent)]
    return tuple([spec for spec in selected if may_use_tool(state.lineage, spec.name)])


def _find_notes(state: RunState, workspace: str, agent: AgentSpec, deps: ModelDeps) -> str:
    """Return the notes of the workspace: those with which the session began, if it began there."""
    if agent.tools == () and state.agent.tools:
        return ""  # a small model that gets no tools
    kept = state.prompt.session_notes
    return kept[1] if kept is not None and kept[0] == workspace else deps.agent_context.notes(agent)


def _choose_patch_forms(tools: tuple[ToolSpec, ...], profile: Profile, deps: ModelDeps) -> tuple[ToolSpec, ...]:
    """Return the tools with those that take patches in the place of others, for a model that is trained on patches.
    Such a tool needs the rights of all tools whose work it can do."""
    if not profile.patches:
        return tools
    names = {spec.name for spec in tools}
    chosen: dict[str, ToolSpec] = {}
    for spec in tools:
        form = deps.tools.find(spec.patch_form) if spec.patch_form is not None else None
        has_rights = form is not None and names.issuperset(form.spec.aliases)
        offered = form.spec if form is not None and has_rights else spec
        chosen[offered.name] = offered
    return tuple(sorted(chosen.values(), key=lambda spec: spec.name))


def _hide_tools(tools: tuple[ToolSpec, ...], state: RunState, window: int, deps: ModelDeps) -> tuple[ToolSpec, ...]:
    """Return the tools of a run. If there are too many searchable ones, they are hidden and the model can search
    for them."""
    searchable = [spec for spec in tools if spec.searchable]
    limits = deps.tool_search
    if not searchable or (
        len(searchable) <= limits.search_above_tools
        and not exceeds_share(searchable, state.agent.limits.context_window or window, limits.search_above_share)
    ):
        return tools
    search = [deps.tools.find(name) for name in SEARCH_TOOLS]
    if None in search:
        return tools
    hidden = [msgspec.structs.replace(spec, hidden=True) if spec.searchable else spec for spec in tools]
    own = [tool.spec for tool in search if tool is not None and tool.spec not in hidden]
    return tuple(sorted((*hidden, *own), key=lambda spec: spec.name))


def _add_client_tools(own: tuple[ToolSpec, ...], state: RunState) -> tuple[ToolSpec, ...]:
    """Return the tools of a run with those that the sender of the message runs itself."""
    brought = () if state.tree.queued is None else state.tree.queued.client_tools
    if not brought:
        return own
    own = () if state.agent.client_tools == "replace" else own
    return (*own, *make_client_specs(brought, own))


def may_use_tool(lineage: Lineage | None, tool: str) -> bool:
    """Return whether a run may use a tool. A child run has no tool that its parent lacks, unless its parent names
    its agent, and a skill grants none."""
    if lineage is None or lineage.tools is None:
        return True
    return tool in lineage.tools or (tool == LOAD_SKILL and not lineage.judges)


def list_allowed_tools(tools: Sequence[str], skills: Sequence[Skill], known: Toolbox) -> Sequence[str]:
    """Return the tools that an agent may call: its own, and those of its skills that exist."""
    if not skills:
        return tools
    skill_tools = [name for skill in skills for name in skill.tools if known.find(name) is not None]
    return (*tools, LOAD_SKILL, *skill_tools)
