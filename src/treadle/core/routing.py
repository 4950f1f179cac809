"""Routing of a message to a model by its apparent complexity."""

import re
from typing import NamedTuple

from treadle.core.context.tokens import CHARACTERS_PER_TOKEN
from treadle.core.state import RunState
from treadle.domain.agents import Tier
from treadle.domain.events import ModelChoice

_CODE = re.compile(
    r"```|^\s*(?:def|class|import|from|func|fn|#include|SELECT|public|const)\b|[{};]\s*$", re.MULTILINE
)


class Score(NamedTuple):
    points: int
    reasons: tuple[str, ...]


class Route(NamedTuple):
    """A model name to resolve, and the reason."""

    model: str
    reason: str
    choice: ModelChoice | None = None
    complexity: int | None = None


def choose_route(state: RunState) -> Route:
    """Return the model that a run begins with: the agent's own, or that of the first tier that fits the message."""
    routing = state.agent.routing
    if routing is None:
        return Route(state.agent.model, "")
    found = score_complexity(state)
    tier = next(
        (tier for tier in routing.tiers if tier.upto is None or found.points <= tier.upto), routing.tiers[-1]
    )
    reason = f"complexity {found.points} ({', '.join(found.reasons)}): {_describe(tier)}"
    return Route(tier.model, reason, "tier", found.points)


def score_complexity(state: RunState) -> Score:
    """Return points for what makes a task harder. Each is capped, so that no single one decides."""
    text = "\n".join(message.text for message in state.turn.inbox)
    tokens, earlier = len(text) // CHARACTERS_PER_TOKEN, len(state.transcript.messages)
    tools = len({spec.name for spec in state.tools.values()}) or len(state.agent.tools)
    parts = (
        (min(40, tokens // 25), f"{tokens} tokens"),
        (min(20, earlier // 2), f"{earlier} earlier messages"),
        (min(20, 2 * tools), f"{tools} tools"),
        (20 if _CODE.search(text) else 0, "code"),
    )
    reasons = tuple(f"{reason}: {points}" for points, reason in parts if points)
    return Score(sum(points for points, _ in parts), reasons or ("nothing special: 0",))


def _describe(tier: Tier) -> str:
    return "the last tier" if tier.upto is None else f"the tier up to {tier.upto:g}"
