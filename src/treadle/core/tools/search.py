"""Search among the tools of a run that the model is not shown: their schemas would take too much of the context."""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from treadle.core.context.tokens import estimate_tool
from treadle.domain.messages import ToolUse
from treadle.domain.tools import ToolSpec


class ForwardedCall(Struct):
    """The arguments of `call_tool`. Some models write the arguments of the tool as JSON text."""

    name: str
    arguments: dict[str, Any] | str = {}


_WORD = re.compile(r"[a-z0-9]+")
_PARTS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[_\-.\s]+")


def exceeds_share(tools: Iterable[ToolSpec], window: int, share: float) -> bool:
    """Return whether the schemas of these tools take more than a share of the context window."""
    limit, used = window * share, 0
    for tool in tools:
        used += estimate_tool(tool)
        if used > limit:
            return True
    return False


def resolve_forwarded_call(use: ToolUse, tools: Mapping[str, ToolSpec]) -> ToolUse:
    """Return the call of the hidden tool that a call of `call_tool` names, or the call unchanged."""
    spec = tools.get(use.name)
    if spec is None or not spec.forwards:
        return use
    try:
        order = msgspec.json.decode(use.arguments or "{}", type=ForwardedCall)
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        return use
    target = tools.get(order.name)
    if target is None or not target.hidden:
        return use
    arguments = (
        order.arguments if isinstance(order.arguments, str) else msgspec.json.encode(order.arguments).decode()
    )
    return ToolUse(use.call_id, target.name, arguments)


def find_hidden_tools(tools: Mapping[str, ToolSpec], query: str, limit: int) -> Sequence[ToolSpec]:
    """Return the hidden tools that match a query, the best first. An exact name is the best match."""
    wanted = set(_words(query))
    scored: list[tuple[float, str]] = []
    hidden = {spec.name: spec for spec in tools.values() if spec.hidden}
    for name, spec in hidden.items():
        named = set(_words(name))
        described = set(_words(spec.description))
        score = 3.0 * len(wanted & named) + len(wanted & described)
        score += sum(0.5 for word in wanted if len(word) > 3 and any(word in other for other in named))
        if name == query.strip():
            score += 100
        if score:
            scored.append((-score, name))
    return [hidden[name] for _, name in sorted(scored)[:limit]]


def _words(text: str) -> list[str]:
    return _WORD.findall(" ".join(_PARTS.split(text)).lower())
