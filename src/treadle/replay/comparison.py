"""Whether an event of today is the one that was recorded, but for what cannot be the same: times that were measured
and the number of a takeover."""

import re
from collections.abc import Iterator
from typing import Any, cast

import msgspec
from msgspec import Struct

from treadle.domain.envelope import Draft, Event
from treadle.domain.events import RunEnd
from treadle.domain.ids import Instant

MEASURED = frozenset(("duration_ms", "first_token_ms", "model_ms", "tool_ms", "epoch"))
INSTANTS = frozenset(("wake_at", "expires_at", "resets_at"))
"""Each was put together with a time somewhere between two events."""
CLOSE = 0.005
LATER = {
    "llm_request": {"input_estimate": ("input_estimate", "cost_estimate", "aside")},
    "llm_error": {"asked_wait": ("asked_wait",)},
    "run_start": {"result_header": ("guidance", "result_header")},
    "budget_hint": {"kept": ("kept",)},
    "model_resolved": {"route": ("route",), "profile": ("profile", "context_window")},
}
"""Type -> a field that is always there since it is on record -> what an older journal without it does not tell."""
FORMER = {"llm_request": {"aside": ("aside", "preface", "messages", "input_estimate", "cost_estimate")}}
"""Type -> a field of older journals alone -> what is told in another way since."""
LONGEST = 400
"""Characters of a text that a difference shows."""
_MISSING = object()
_REDACTED = re.compile(r"\[redacted:\w+\]")
"""What stands for a secret, which a replay does not know."""
_AT = re.compile(r", at [\d-]+ [\d:]+ UTC|the deadline, which comes before ")
"""What older journals do not tell of a wait."""
_MINUTE = re.compile(r"\w+, \d{4}-\d\d-\d\d \d\d:\d\d UTC")


class Difference(Struct, frozen=True):
    """Where two values differ, and how; null: it is not there."""

    path: str
    recorded: Any = None
    today: Any = None


def differences(event: Event, since: Instant, made: Draft) -> tuple[Difference, ...]:
    """How what would be written today differs from what was recorded. The clock was read for it after `since`."""
    if made.type == event.type and made.raw == event.raw:
        return ()
    if made.type != event.type:
        return (Difference("type", event.type, made.type),)
    recorded, today = _plain(event.raw), _plain(made.raw)
    if isinstance(event.data, RunEnd):  # earlier versions left out the metrics that were 0
        recorded["metrics"] = msgspec.to_builtins(event.data.metrics)
    for told_since, fields in LATER.get(event.type, {}).items():
        if told_since not in recorded:
            for name in fields:
                today.pop(name, None)
    for told_then, fields in FORMER.get(event.type, {}).items():
        if told_then in recorded:
            for name in fields:
                today.pop(name, None)
                recorded.pop(name, None)
    slack = CLOSE + abs(event.timestamp - since)
    return tuple(_differences("", recorded, today, slack))


def _plain(raw: bytes) -> dict[str, Any]:
    return msgspec.json.decode(raw)


def _differences(path: str, recorded: Any, today: Any, slack: float) -> Iterator[Difference]:
    name = path.rpartition(".")[2]
    if recorded == today or name in MEASURED:
        return
    if isinstance(recorded, dict) and isinstance(today, dict):
        one, other = cast("dict[str, Any]", recorded), cast("dict[str, Any]", today)
        for key in dict.fromkeys((*one, *other)):
            inner = f"{path}.{key}" if path else key
            yield from _differences(inner, one.get(key, _MISSING), other.get(key, _MISSING), slack)
    elif isinstance(recorded, list) and isinstance(today, list):
        former, latter = cast("list[Any]", recorded), cast("list[Any]", today)
        for index in range(max(len(former), len(latter))):
            here = former[index] if index < len(former) else _MISSING
            there = latter[index] if index < len(latter) else _MISSING
            yield from _differences(f"{path}[{index}]", here, there, slack)
    elif not _same(name, recorded, today, slack):
        yield Difference(path, _shown(recorded, today), _shown(today, recorded))


def _same(name: str, recorded: Any, today: Any, slack: float) -> bool:
    if name in INSTANTS and isinstance(recorded, int | float) and isinstance(today, int | float):
        return abs(recorded - today) <= slack
    if isinstance(recorded, str) and isinstance(today, str) and "[redacted:" in recorded:
        return _fits(_REDACTED.split(recorded), today)
    if name == "detail" and isinstance(recorded, str) and isinstance(today, str):
        return _AT.sub("", recorded) == _AT.sub("", today)
    if name in ("aside", "preface") and isinstance(recorded, str) and isinstance(today, str) and slack > 1:
        return _MINUTE.sub("", recorded) == _MINUTE.sub("", today)
    return False


def _fits(pieces: list[str], text: str) -> bool:
    """Whether a text is these pieces, in order, with anything between them."""
    first, *middle, last = pieces
    if not text.startswith(first) or not text.endswith(last) or len(text) < len(first) + len(last):
        return False
    at = len(first)
    for piece in middle:
        found = text.find(piece, at, len(text) - len(last))
        if found < 0:
            return False
        at = found + len(piece)
    return True


def _shown(value: Any, other: Any) -> Any:
    """The value; of a long text, what is around the first character that differs."""
    if value is _MISSING:
        return None
    if not isinstance(value, str) or len(value) <= LONGEST:
        return value
    at = 0
    if isinstance(other, str):
        at = next(
            (i for i, (a, b) in enumerate(zip(value, other, strict=False)) if a != b), min(len(value), len(other))
        )
    begin = max(0, at - LONGEST // 4)
    end = begin + LONGEST
    return f"{'…' if begin else ''}{value[begin:end]}{'…' if end < len(value) else ''}"
