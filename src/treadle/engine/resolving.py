"""Which model answers: found when a worker takes a run up, and again when another takes over."""

from msgspec import Struct

from treadle.core.guards.quarantine import RECOVERIES
from treadle.core.retry import fallback_after
from treadle.core.routing import Route, route
from treadle.core.state import RunState
from treadle.domain.errors import UsageError
from treadle.domain.events import EventData, LlmError, ModelResolved, RunStart
from treadle.domain.tools import ToolSpec
from treadle.engine.deps import Deps
from treadle.engine.ownership import Log
from treadle.ports.model import Resolved


class Missing(Struct, frozen=True):
    """Something that the run needs and this engine does not have."""

    what: str


def begin(log: Log, deps: Deps) -> Resolved | Missing:
    """Find the model that answers and, the first time, the tools that may be called."""
    state = log.state
    if state.cancelled is not None or state.recoveries > RECOVERIES:
        return Missing("nothing: it is about to end")
    try:
        model, news = _find(state, deps)
        tools = _tools(state, deps)
    except UsageError as error:
        return Missing(str(error))
    if not state.started:
        log.record(RunStart(tools))
    log.record(*news)
    return model


def take_over(log: Log, deps: Deps) -> Resolved | Missing:
    """After a fallback: the first of those that are left which is to be had."""
    while True:
        try:
            model, news = _find(log.state, deps)
        except UsageError as error:
            following = fallback_after(log.state, str(error))
            if following is None:
                log.record(_nobody_left(log.state, error))
                return Missing(str(error))
            log.record(following)
        else:
            log.record(*news)
            return model


def another_is_well(model: Resolved, state: RunState, deps: Deps) -> bool:
    """Whether the name that the run goes by stands for another model now, as an alias of several may."""
    try:
        found = _resolved(_wanted(state).model, state, deps)
    except UsageError:
        return False
    return (found.provider, found.model) != (model.provider, model.model)


def _nobody_left(state: RunState, error: UsageError) -> LlmError:
    """The failure that made the run fall back, and why nobody could take over."""
    message = f"{state.fallback_reason} No fallback could take over: {error}"
    return LlmError(state.step.number, state.step.attempts, "not_found", message, retryable=False)


def _find(state: RunState, deps: Deps) -> tuple[Resolved, tuple[EventData, ...]]:
    """The model that the run asks, and what is put on record where it is another one than before."""
    wanted, known = _wanted(state), state.model
    found = _resolved(wanted.model, state, deps)
    if known and (known.provider, known.model, known.route) == (found.provider, found.model, wanted.model):
        return found, ()
    reason = "; ".join(filter(None, (wanted.reason, found.reason)))
    window = found.profile.context_window
    return found, (ModelResolved(found.provider, found.model, found.api_mode, reason, wanted.model, window),)


def _resolved(name: str, state: RunState, deps: Deps) -> Resolved:
    provider = state.agent.provider if name == state.agent.model else None  # others name their own
    return deps.models.resolve(name, provider)


def _wanted(state: RunState) -> Route:
    """What the run was routed to, once it has been; a fallback, once it fell back."""
    if not state.route:
        return route(state)
    return Route(state.route, "a fallback" if state.fallbacks_used else "")


def _tools(state: RunState, deps: Deps) -> tuple[ToolSpec, ...]:
    """The tools that a run begins with. Raises UsageError where one is gone that it has begun with."""
    if not state.started:
        return tuple([tool.spec for tool in deps.tools.select(state.agent.tools)])
    for name in state.tools:
        if deps.tools.find(name) is None:
            raise UsageError(f"The run needs the tool `{name}`, which this engine does not have. Add it.")
    return ()
