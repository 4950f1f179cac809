"""Which guards watch a run, and which one acted, derived from the agent and the events."""

from typing import Final, Literal

from treadle.domain import events as e
from treadle.domain.events import EventData
from treadle.domain.quotas import NO_QUOTAS, QuotaKind
from treadle.domain.runs import OutcomeKind

Verdict = Literal["warn", "block", "stop"]

WARNINGS: Final[dict[type[EventData], tuple[str, Verdict]]] = {
    kind.data: (kind.guard, "warn") for kind in e.VOCABULARY.values() if kind.guard
}
"""The events with which guards warn."""
_ACTS: Final[dict[type[EventData], tuple[str, Verdict]]] = {**WARNINGS, e.ApprovalExpired: ("approval", "block")}
_QUOTA_GUARDS: Final[dict[QuotaKind, str]] = {
    "tokens": "quota",
    "calls": "quota",
    "credits": "credits",
    "cost": "budget",
}
_STOPS: Final[dict[OutcomeKind, str]] = {
    "empty": "empty",
    "refused": "refused",
    "truncated": "continuation",
    "context_overflow": "context",
    "quarantined": "quarantine",
    "max_steps": "max_steps",
    "deadline": "deadline",
    "budget_exhausted": "budget",
    "quota_exceeded": "quota",
    "insufficient_credits": "credits",
    "approval_expired": "approval",
}

FIRES: Final[tuple[tuple[str, Verdict], ...]] = (
    *dict.fromkeys(_ACTS.values()),
    ("loop", "block"),
    ("stuck", "block"),
    ("loop", "stop"),
    ("stuck", "stop"),
    *((guard, "stop") for guard in _STOPS.values()),
    *((guard, "warn") for guard in ("quota", "credits", "budget")),
    ("quota", "block"),
    ("budget", "block"),
)
"""All combinations that can occur."""
GUARDS: Final = tuple(dict.fromkeys(guard for guard, _ in FIRES))


def list_armed_guards(queued: e.RunQueued) -> tuple[str, ...]:
    """Return the guards that watch a run: those of its agent, its token, and the runs above it."""
    agent, limits, lineage = queued.agent, queued.agent.limits, queued.lineage
    inherited = () if lineage is None else tuple([each for _, each in lineage.quotas])
    quotas = (agent.quotas, queued.token_quotas or NO_QUOTAS, *inherited)
    windows = [end for each in quotas for end in (each.max_llm_tokens_per_hour, each.max_tool_calls_per_minute)]
    ceilings = () if lineage is None else lineage.ceilings
    configured = {
        "quota": any(end is not None for end in windows),
        "credits": any(each.credits is not None for each in quotas),
        "budget": any(cost is not None for cost in (limits.cost, *(each.cost for each in ceilings))),
        "max_steps": limits.max_steps is not None,
        "deadline": limits.deadline is not None,
        "stuck": limits.stuck_steps > 0,
        "output": agent.output is not None,
        "budget_hint": agent.budget_hints and limits.max_steps is not None,
    }
    return tuple([guard for guard in GUARDS if configured.get(guard, True)])


def find_fired_guard(data: EventData, last: str = "") -> tuple[str, Verdict] | None:
    """Return the guard that acted through an event, and how strictly, or None.

    A run that ends `stuck` was stopped by the loop guard or by the stuck guard: by the one that acted `last`, or by
    the loop guard if that is unknown."""
    match data:
        case e.ToolCallBlocked(guard=guard):
            return guard, "block"
        case e.StuckDetected(kind=kind) if kind in e.LOOP_KINDS:
            return "loop", "warn"
        case e.QuotaWarning(kind=kind):
            return _QUOTA_GUARDS[kind], "warn"
        case e.RunWaiting(reason=("quota" | "budget") as guard):
            return guard, "block"
        case e.RunEnd(outcome="stuck"):
            return last or "loop", "stop"
        case e.RunEnd(outcome=outcome):
            stopped = _STOPS.get(outcome)
            return None if stopped is None else (stopped, "stop")
        case _:
            return _ACTS.get(type(data))
