"""Comparison of a recorded event with the event that the current code makes.

Facts and wording are compared separately. Wording is text that the engine renders for people and models: it may
change from version to version, and no decision depends on it. Values that cannot be the same again are ignored:
measured times and the number of a takeover."""

import re
from collections.abc import Iterator
from typing import Any, cast

from msgspec import Struct

from treadle.core.context.tokens import estimate_text
from treadle.domain.envelope import Event
from treadle.domain.events import (
    NAMES,
    EventData,
    LlmError,
    QualityScored,
    RunEnd,
    ToolCallEnd,
    ToolCallError,
)
from treadle.domain.excerpts import take_excerpt
from treadle.domain.ids import Instant
from treadle.domain.time_format import format_minute

MEASURED = frozenset(("duration_ms", "first_token_ms", "model_ms", "tool_ms", "epoch", "breaker_seconds", "plain"))
"""Fields that depend on how long something took."""
INSTANTS = frozenset(("wake_at", "expires_at", "resets_at"))
"""Fields that were computed from a time between two events."""
INSTANT_SLACK_SECONDS = 0.005
WORDING = {
    "agent_spawn": ("end.reason", "end.next"),
    "agent_told": ("reason",),
    "approval_decided": ("note",),
    "approval_requested": ("reason",),
    "budget_hint": ("note",),
    "call_written": ("note",),
    "calls_dropped": ("note",),
    "command_obeyed": ("said",),
    "compaction_failed": ("reason",),
    "context_compacted": ("record",),
    "continuation": ("note",),
    "empty_turn": ("note",),
    "error_analyzed": ("reason",),
    "hook_blocked": ("content",),
    "llm_fallback": ("reason",),
    "llm_request": ("preface",),
    "loop_warning": ("note",),
    "memory_recalled": ("section",),
    "model_resolved": ("reason",),
    "output_rejected": ("error", "note"),
    "phantom_action": ("note",),
    "quality_scored": ("note",),
    "recovery_action": ("note",),
    "run_end": ("reason", "next", "stopped", "mismatch"),
    "run_recovered": ("reason",),
    "run_start": ("sections",),
    "run_waiting": ("detail",),
    "tool_call_blocked": ("content",),
    "tool_call_error": ("content",),
}
"""Event type -> fields that the engine renders. Whether such a field is empty is a fact."""
RENDERED_KINDS = ("denied", "invalid_arguments")
RENDERED_CAUSES = ("not_started", "secret_refused")
"""Failed calls whose reason is rendered by Treadle. The excerpt of the others comes from the tool."""
ESTIMATES = {"budget_reserved": "tokens", "llm_request": "input_estimate"}
"""Event type -> the field that counts the tokens of the texts that are recorded with it."""
WITH_INSTRUCTIONS = {
    "compaction_failed": ("usage", "cost"),
    "compaction_started": ("input_estimate", "cost_estimate"),
}
"""Event type -> fields that depend on the length of Treadle's own instructions to a model."""
MAX_SHOWN_CHARACTERS = 400
_MISSING = object()
_REDACTED = re.compile(r"\[redacted:\w+\]")
"""The mark in place of a secret, which a replay does not know."""


class Difference(Struct, frozen=True):
    """A value that differs. Null: it is missing."""

    path: str
    recorded: Any = None
    today: Any = None


class WordingDifference(Struct, frozen=True):
    """Texts of one event that the current code words differently. No decision depends on them."""

    sequence: int
    type: str
    differences: tuple[Difference, ...]


class Comparison(Struct, frozen=True):
    """The differences between a recorded event and the one that the current code makes."""

    facts: tuple[Difference, ...] = ()
    wording: tuple[Difference, ...] = ()


SAME = Comparison()


def compare(
    event: Event, since: Instant, made: EventData, is_command: bool = False, more_tokens: int = 0
) -> Comparison:
    """Return how an event of the current code differs from the recorded one.

    Its times were computed from a clock that was read between `since` and the time of the event. A run of a session
    command ends with a text that the engine renders. `more_tokens` is the size that reworded texts add to the
    estimates that are recorded with them."""
    type_ = NAMES[type(made)]
    if type_ != event.type:
        return Comparison((Difference("type", event.type, type_),))
    if made == event.data:
        return SAME
    recorded, today = _plain(event.data), _plain(made)
    _drop_excerpts(event.data, recorded, today)
    _drop_incomparable(event, recorded, today)
    if type_ in ESTIMATES and more_tokens:
        today[ESTIMATES[type_]] = today.get(ESTIMATES[type_], 0) - more_tokens
    wording = _pop_wording(event, recorded, today, is_command)
    slack = INSTANT_SLACK_SECONDS + abs(event.timestamp - since)
    times = {format_minute(event.timestamp), format_minute(since)} if slack > 1 else set[str]()
    return Comparison(
        tuple(_find_differences("", recorded, today, slack)),
        tuple([each for path, one, other in wording for each in _compare_texts(path, one, other, times)]),
    )


def count_added_tokens(event: Event, made: EventData) -> int:
    """Return how many tokens more the text of a reworded event has, by the engine's estimate."""
    recorded, added = event.data, 0
    for name in ("section", "preface"):
        one, other = getattr(recorded, name, ""), getattr(made, name, "")
        if one and other and one != other:
            added += estimate_text(other) - estimate_text(one)
    return added


def _plain(data: EventData) -> dict[str, Any]:
    """Return the data as plain values, with the texts of excerpts in place of their positions."""
    plain: dict[str, Any] = _unfold(data)
    text = plain.get("content", plain.get("section", plain.get("said", "")))
    owners = [plain, *(each for name in ("reminders", "notes", "memories") for each in _structs(plain.get(name)))]
    for owner in owners:
        if owner.get("excerpt") is not None:
            owner["excerpt"] = take_excerpt(text, owner["excerpt"])
    return plain


def _unfold(value: Any) -> Any:
    """Return a value as plain dictionaries and lists, with every field, also one that has its default."""
    match value:
        case Struct():
            tag = value.__struct_config__.tag
            fields = {name: _unfold(getattr(value, name)) for name in value.__struct_fields__}
            return fields if tag is None else {"kind": tag, **fields}
        case list() | tuple():
            return [_unfold(item) for item in cast("list[Any]", value)]
        case dict():
            return {key: _unfold(item) for key, item in cast("dict[str, Any]", value).items()}
        case _:
            return value


def _structs(value: Any) -> list[dict[str, Any]]:
    values = cast("list[Any]", value) if isinstance(value, list) else []
    return [cast("dict[str, Any]", each) for each in values if isinstance(each, dict)]


def _drop_incomparable(event: Event, recorded: dict[str, Any], today: dict[str, Any]) -> None:
    """Remove what depends on the wording of other texts."""
    for name in WITH_INSTRUCTIONS.get(event.type, ()):
        today.pop(name, None)
        recorded.pop(name, None)


def _drop_excerpts(data: EventData, recorded: dict[str, Any], today: dict[str, Any]) -> None:
    """Remove excerpts that are the engine's words, and those that only one side has: the redactor removes them from
    an event with a secret."""
    if isinstance(data, ToolCallError) and (data.kind in RENDERED_KINDS or data.cause in RENDERED_CAUSES):
        recorded.pop("excerpt", None)
    pairs = [(recorded, today)]
    for name in ("reminders", "notes", "memories"):
        pairs += zip(_structs(recorded.get(name)), _structs(today.get(name)), strict=False)
    for one, other in pairs:
        if one.get("excerpt") is None or other.get("excerpt") is None:
            one.pop("excerpt", None)
            other.pop("excerpt", None)


def _pop_wording(
    event: Event, recorded: dict[str, Any], today: dict[str, Any], is_command: bool
) -> list[tuple[str, Any, Any]]:
    """Remove the fields that the engine renders, and return their values."""
    names = WORDING.get(event.type, ())
    match event.data:
        case ToolCallEnd() if "excerpt" in recorded:
            names = ("content",)
        case LlmError(no_fallback=reason) if reason:
            names = ("message",)
        case RunEnd() if is_command:
            names = (*names, "text")
        case QualityScored(score=None):
            names = (*names, "reasons")
        case _:
            pass
    found: list[tuple[str, Any, Any]] = []
    for path in names:
        outer, _, name = path.rpartition(".")
        one, other = (values.get(outer) or {} if outer else values for values in (recorded, today))
        if one.get(name) and other.get(name):
            found.append((path, one.pop(name), other.pop(name)))
    return found


def _compare_texts(path: str, recorded: Any, today: Any, times: set[str]) -> Iterator[Difference]:
    if isinstance(recorded, str) and isinstance(today, str):
        for time in times:  # the clock may have been read in the minute before
            recorded, today = recorded.replace(time, ""), today.replace(time, "")
    yield from _find_differences(path, recorded, today, 0.0)


def _find_differences(path: str, recorded: Any, today: Any, slack: float) -> Iterator[Difference]:
    name = path.rpartition(".")[2]
    if recorded == today or name in MEASURED:
        return
    if isinstance(recorded, dict) and isinstance(today, dict):
        one, other = cast("dict[str, Any]", recorded), cast("dict[str, Any]", today)
        for key in dict.fromkeys((*one, *other)):
            inner = f"{path}.{key}" if path else key
            yield from _find_differences(inner, one.get(key, _MISSING), other.get(key, _MISSING), slack)
    elif isinstance(recorded, list) and isinstance(today, list):
        one_list, other_list = cast("list[Any]", recorded), cast("list[Any]", today)
        for index in range(max(len(one_list), len(other_list))):
            here = one_list[index] if index < len(one_list) else _MISSING
            there = other_list[index] if index < len(other_list) else _MISSING
            yield from _find_differences(f"{path}[{index}]", here, there, slack)
    elif not _is_same(name, recorded, today, slack):
        yield Difference(path, _show(recorded, today), _show(today, recorded))


def _is_same(name: str, recorded: Any, today: Any, slack: float) -> bool:
    if name in INSTANTS and isinstance(recorded, int | float) and isinstance(today, int | float):
        return abs(recorded - today) <= slack
    if isinstance(recorded, str) and isinstance(today, str) and "[redacted:" in recorded:
        return _contains_pieces(_REDACTED.split(recorded), today)
    return False


def _contains_pieces(pieces: list[str], text: str) -> bool:
    """Return whether a text consists of these pieces, in order, with anything between them."""
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


def _show(value: Any, other: Any) -> Any:
    """Return the value; of a long text, the part around the first character that differs."""
    if value is _MISSING:
        return None
    if not isinstance(value, str) or len(value) <= MAX_SHOWN_CHARACTERS:
        return value
    at = 0
    if isinstance(other, str):
        at = next(
            (i for i, (a, b) in enumerate(zip(value, other, strict=False)) if a != b), min(len(value), len(other))
        )
    begin = max(0, at - MAX_SHOWN_CHARACTERS // 4)
    end = begin + MAX_SHOWN_CHARACTERS
    return f"{'…' if begin else ''}{value[begin:end]}{'…' if end < len(value) else ''}"
