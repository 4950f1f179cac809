"""Version 1 of the event data. It held some facts only within sentences. This module reads them out of the exact
texts of that version, when such an event is decoded. It is frozen: nothing else may read a fact out of a text, and
version 2 and later are never passed to it."""

import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import msgspec

from treadle.domain import events as e
from treadle.domain.events.definitions import EventData
from treadle.domain.excerpts import Excerpt, place_excerpt
from treadle.domain.memories import ShownMemory
from treadle.domain.permissions import ConcernKind
from treadle.domain.quotas import QuotaKind, Shortage

ADDED: dict[str, tuple[str, ...]] = {
    "agent_spawn": ("end.shortage",),
    "approval_decided": ("superseded",),
    "approval_requested": ("concern", "places"),
    "budget_exhausted": ("unpriced",),
    "command_obeyed": ("memories", "usage.cost"),
    "compaction_failed": ("cause",),
    "hook_blocked": ("stage", "cause"),
    "llm_error": ("no_fallback",),
    "llm_fallback": ("cause", "breaker_seconds"),
    "memory_recalled": ("reminders.created_at", "reminders.excerpt", "notes"),
    "model_resolved": ("choice", "complexity", "resolution"),
    "quota_exceeded": ("unpriced",),
    "run_end": ("shortage",),
    "run_recovered": ("cause",),
    "run_waiting": ("subjects", "shortage", "breaker_seconds"),
    "tool_call_end": ("truncation",),
    "tool_call_error": ("truncation", "cause", "exception", "limit", "subject", "concern"),
}
"""Event type -> fields that version 2 added. What this module finds for them may be rounded or incomplete."""

UNKNOWN_TREE = "tree/"
"""Account of a tree whose root run the text does not name."""

# ── Texts of version 1 ──

_WORKER_DIED = "The worker before died or lost its lease."
_SUPERSEDED = "A new message came before anybody answered."
_OUTCOME_UNKNOWN = (
    "Interrupted, outcome unknown: the call was started, and whether it took effect is not known. "
    "Check before you do it again."
)
_AFTER_AN_ERROR = " Do not make up a result: say that it failed, or try another way."
_AFTER_A_DENIAL = " Do not try this call again: go on without it, or say what you need it for."
_NO_REVIEWER = "It needs an approval, and nobody can answer: the message came without a terminal or a channel. ("
_NO_USER = "Nobody can answer. Go on with what you think best, and say what you assumed."
_UNANSWERED = "Nobody answered in time. Go on with what you think best, and say what you assumed."
_RAW_SECRET = "Its arguments hold the value of the secret "
_TREE_FULL = re.compile(
    r"Nothing was begun\. The tree of runs that this one belongs to may have ([\d.e+]+) runs under its root\."
)
_NOT_STARTED = "Nothing was begun: "
_CALLED = re.compile(r" is called `([^`]+)`")
_TIME_LIMIT = re.compile(r"did not end within (\S+) s and was stopped")
_EDITED = "[a person had it run with other arguments: "
_TRUNCATED = re.compile(r"\n\[… \d+ of (\d+) characters are left out here; [^\n]* …\]\n")
_MEMORY = re.compile(r"^- \((\d{4}-\d\d-\d\d|undated)\) (.*)$", re.MULTILINE)
_NO_ANSWER = "(It has ended, and had nothing to say.)"
_USAGE = re.compile(
    r"runs      (\d+), with (\d+) steps and (\d+) tool calls\n"
    r"tokens    (\d+) in \((\d+) of them from a cache\), (\d+) out\n"
    r"cost      \$([\d.]+)(?: and (\d+) model calls of unknown price)?\n"
    r"context   about (\d+) of (\d+) tokens \(\d+%\), (\d+) messages\n"
    r"segments  (\d+)"
)
_BREAKER = re.compile(r"is left alone for (\d+) s")
_NO_FALLBACK = "No fallback could take over: "
_ROUTED = re.compile(r"^(?:(a fallback)|complexity (\d+) .*?: the (?:last tier|tier up to \S+))(?:; |$)")
_COMPACTION_CAUSES = {
    "It was interrupted.": "interrupted",
    "The summary is no shorter than what it would stand for.": "not_shorter",
    "The model wrote nothing.": "empty",
    "There is nothing to write about.": "nothing",
}
_CONCERNS: tuple[tuple[str, ConcernKind], ...] = (("private place: ", "private"), ("no sandbox: ", "unconfined"))
_PLACE = re.compile(r"private place: it (?:changes|reads) (.*) \([^()]*\)")
_ACCOUNT = re.compile(
    r"(?:Agent `(?P<agent>[^`]*)`|The access token (?P<token>\S+)|The run)(?: and those under it)? "
)
_NUMBER = r"([\d,.]+(?:e[+-]?\d+)?)"
_SHORTAGES: tuple[tuple[QuotaKind, re.Pattern[str]], ...] = (
    ("tokens", re.compile(rf"may use {_NUMBER} model tokens in an hour; {_NUMBER} are used, and the next call may "
                          rf"take {_NUMBER}\.(?: |$)")),
    ("calls", re.compile(rf"may call tools {_NUMBER} times in a minute; it has {_NUMBER} times, and {_NUMBER} more "
                         r"are wanted\.")),
    ("credits", re.compile(rf"may spend {_NUMBER} credits; {_NUMBER} are spent, and the next call may take "
                           rf"{_NUMBER}\.(?: |$)")),
    ("credits", re.compile(rf"may spend {_NUMBER} credits, and no price is known")),
    ("cost", re.compile(rf"may cost {_NUMBER} dollars; it has cost {_NUMBER}, and the next call may cost "
                        rf"{_NUMBER}\.(?: |$)")),
    ("cost", re.compile(rf"may cost {_NUMBER} dollars, and no price is known")),
    ("steps", re.compile(rf"may take {_NUMBER} steps together, and all are used\.")),
)  # fmt: skip
_ROOM_AGAIN = re.compile(r"There is room again on ([^.]+)\.")
_WAITS = re.compile(r"(apr_\w+): |(run_\w+) \(|(\S+) waits until another has ended|told to stop: (.+)")
_QUESTION = re.compile(r"(\S+): ")


def upgrade(type_: str, data: EventData) -> EventData:
    """Return the data of a version-1 event as version 2 has it."""
    change = _CHANGES.get(type_)
    return data if change is None else change(data)


def _replace(data: EventData, **fields: Any) -> EventData:
    return msgspec.structs.replace(data, **fields)


# ── Runs ──


def _upgrade_waiting(data: e.RunWaiting) -> EventData:
    match data.reason:
        case "quota" | "budget":
            return _replace(data, shortage=_read_shortage(data.detail, data.wake_at))
        case "breaker":
            return _replace(data, breaker_seconds=_read_breaker(data.detail))
        case "approval" | "answer" | "child":
            return _replace(data, subjects=_read_subjects(data))
        case _:
            return data


def _read_subjects(data: e.RunWaiting) -> tuple[str, ...]:
    found: list[str] = []
    for part in data.detail.split("; "):
        match = _WAITS.match(part) or (_QUESTION.match(part) if data.reason == "answer" else None)
        if match is not None and match.lastindex is not None:
            found += match[match.lastindex].split(", ")
    return tuple(found)


def _read_shortage(text: str, wake_at: float | None = None) -> Shortage | None:
    account = _ACCOUNT.match(text)
    if account is None:
        return None
    name = UNKNOWN_TREE
    if account["agent"] is not None:
        name = f"agent/{account['agent']}"
    elif account["token"] is not None:
        name = f"token/{account['token']}"
    for kind, pattern in _SHORTAGES:
        if match := pattern.match(text, account.end()):
            numbers = [float(each.replace(",", "")) for each in match.groups()]
            if kind == "steps":
                return Shortage(name, kind, numbers[0], numbers[0], 0.0, 1.0)
            used, wanted = numbers[1:] if len(numbers) == 3 else (0.0, None)
            return Shortage(name, kind, numbers[0], used, 0.0, wanted, _read_reset(text, wake_at))
    return None


def _read_reset(text: str, wake_at: float | None) -> float | None:
    """Return when the account has room again: the end of the wait, if the text names the same minute."""
    match = _ROOM_AGAIN.search(text)
    if match is None:
        return None
    try:
        minute = datetime.strptime(match[1], "%A, %Y-%m-%d %H:%M UTC").replace(tzinfo=UTC).timestamp()
    except ValueError:
        return None
    return wake_at if wake_at is not None and minute <= wake_at < minute + 60 else minute


def _upgrade_end(data: e.RunEnd) -> EventData:
    return _replace(data, shortage=shortage) if (shortage := _read_shortage(data.reason)) else data


def _upgrade_spawn(data: e.AgentSpawn) -> EventData:
    if data.end is None or (shortage := _read_shortage(data.end.reason)) is None:
        return data
    return _replace(data, end=msgspec.structs.replace(data.end, shortage=shortage))


def _upgrade_recovered(data: e.RunRecovered) -> EventData:
    return data if data.reason == _WORKER_DIED else _replace(data, cause="engine_failed")


def _upgrade_exhausted(data: e.BudgetExhausted | e.QuotaExceeded) -> EventData:
    return _replace(data, unpriced=True) if not data.wanted and data.used <= data.ceiling else data


# ── Models ──


def _upgrade_resolved(data: e.ModelResolved) -> EventData:
    match = _ROUTED.match(data.reason)
    if match is None:
        return data
    choice = "tier" if match[1] is None else "fallback"
    complexity = None if match[2] is None else int(match[2])
    return _replace(data, choice=choice, complexity=complexity, resolution=data.reason[match.end() :])


def _upgrade_fallback(data: e.LlmFallback) -> EventData:
    seconds = _read_breaker(data.reason)
    return data if seconds is None else _replace(data, cause="breaker", breaker_seconds=seconds)


def _read_breaker(text: str) -> float | None:
    match = _BREAKER.search(text)
    return None if match is None else float(match[1])


def _upgrade_error(data: e.LlmError) -> EventData:
    _, found, reason = data.message.partition(_NO_FALLBACK)
    return _replace(data, no_fallback=reason) if found else data


def _upgrade_compaction(data: e.CompactionFailed) -> EventData:
    return _replace(data, cause=_COMPACTION_CAUSES.get(data.reason, "failed"))


# ── Tool calls ──


def _upgrade_result(data: e.ToolCallEnd) -> EventData:
    truncation, start = _read_truncation(data.content, data.truncated), _read_edit(data.content)
    if data.content == _NO_ANSWER:
        return _replace(data, excerpt=(0, 0))
    if truncation is None and not start:
        return data
    return _replace(data, truncation=truncation, excerpt=(start, len(data.content)) if start else None)


def _read_truncation(content: str, truncated: bool) -> e.Truncation | None:
    match = _TRUNCATED.search(content) if truncated else None
    if match is None:
        return None
    tail = len(content.removesuffix(_AFTER_AN_ERROR)) - match.end()
    return e.Truncation(int(match[1]), match.start(), tail)


def _read_edit(content: str) -> int:
    """Return the length of the note that a reviewer edited the arguments."""
    if not content.startswith(_EDITED):
        return 0
    try:
        _, end = json.JSONDecoder().raw_decode(content, len(_EDITED))
    except ValueError:
        return 0
    return end + 2 if content.startswith("]\n", end) else 0


def _upgrade_call_error(data: e.ToolCallError) -> EventData:
    content, truncation = data.content, _read_truncation(data.content, data.truncated)
    if content.endswith(_AFTER_AN_ERROR):
        limit = _TIME_LIMIT.search(content) if data.kind == "timeout" else None
        if limit is not None:
            return _replace(data, limit=float(limit[1]))
        before, end = f"`{data.name}` failed: ", len(content) - len(_AFTER_AN_ERROR)
        if content.startswith(before) and truncation is None:  # an exception reads the same as an explained failure
            return _replace(data, cause="tool_error", excerpt=(len(before), end))
        return _replace(data, truncation=truncation, excerpt=(_read_edit(content), end))
    if content == _OUTCOME_UNKNOWN:
        return _replace(data, cause="outcome_unknown")
    if tree := _TREE_FULL.match(content):
        return _replace(data, cause="tree_full", limit=float(tree[1]))
    match data.kind:
        case "failed":
            return _upgrade_failure(data)
        case "invalid_arguments":
            return _replace(data, excerpt=_read_after(content, f"`{data.name}` was not run: "))
        case "denied":
            return _upgrade_denial(data)
        case "skipped" if content == _UNANSWERED:
            return _replace(data, cause="expired")
        case "skipped" if content.startswith("Not answered. "):
            return _replace(data, cause="superseded")
        case _:
            return data


def _upgrade_failure(data: e.ToolCallError) -> EventData:
    content = data.content
    if content.startswith(_NOT_STARTED):
        called = _CALLED.search(content)
        excerpt, subject = (len(_NOT_STARTED), len(content)), called[1] if called else ""
        return _replace(data, cause="not_started", excerpt=excerpt, subject=subject)
    before = f"`{data.name}` failed: "
    if content.startswith(before) and content.endswith("."):
        exception, colon, _ = content[len(before) :].partition(": ")
        if colon:
            start = len(before) + len(exception) + len(colon)
            return _replace(data, cause="raised", exception=exception, excerpt=(start, len(content) - 1))
    return data


def _upgrade_denial(data: e.ToolCallError) -> EventData:
    if data.content == _NO_USER:
        return _replace(data, cause="no_user")
    before = f"`{data.name}` was not run. "
    reason = data.content.removeprefix(before).removesuffix(_AFTER_A_DENIAL)
    excerpt = place_excerpt(before, reason)
    if reason.startswith(_NO_REVIEWER):
        excerpt = (excerpt[0] + len(_NO_REVIEWER), excerpt[1] - 1)
        concern = _read_concern(reason.removeprefix(_NO_REVIEWER))
        return _replace(data, cause="no_reviewer", excerpt=excerpt, concern=concern)
    cause = "rule"
    for beginning, name in (("Denied: superseded.", "superseded"), ("Denied: nobody answered", "expired"),
                            ("Denied.", "reviewer"), (_RAW_SECRET, "raw_secret")):  # fmt: skip
        if reason.startswith(beginning):
            cause = name
            break
    return _replace(data, cause=cause, excerpt=excerpt)


def _read_after(content: str, before: str) -> Excerpt | None:
    return (len(before), len(content)) if content.startswith(before) else None


def _upgrade_blocked(data: e.HookBlocked) -> EventData:
    content, stage = data.content, "before"
    excerpt = _read_after(content, f"`{data.name}` was not run: ")
    if excerpt is None:
        stage, excerpt = "after", _read_after(content, f"`{data.name}` has run, but its result is withheld: ")
    reason = content if excerpt is None else content[excerpt[0] :]
    own = f"the hook {data.hook}"
    cause = "blocked"
    for beginning, name in ((f"{own} did not answer within ", "timeout"), (f"{own} failed: ", "failed"),
                            (f"{own} answered ", "invalid"), (f"{own} rewrote the arguments to", "invalid"),
                            ("a hook has put the value of a secret", "secret")):  # fmt: skip
        if reason.startswith(beginning):
            cause = name
            break
    return _replace(data, stage=stage, cause=cause, excerpt=excerpt)


# ── Approvals and memories ──


def _read_concern(reason: str) -> ConcernKind | None:
    return next((kind for beginning, kind in _CONCERNS if reason.startswith(beginning)), None)


def _upgrade_request(data: e.ApprovalRequested) -> EventData:
    concern = _read_concern(data.reason)
    if concern is None:
        return data
    place = _PLACE.fullmatch(data.reason)
    return _replace(data, concern=concern, places=() if place is None else (place[1],))


def _upgrade_decision(data: e.ApprovalDecided) -> EventData:
    return _replace(data, superseded=True) if data.note == _SUPERSEDED else data


def _read_memories(text: str) -> list[ShownMemory]:
    """Return the memories that a text lists, with numbers in place of the IDs that it does not give."""
    found: list[ShownMemory] = []
    for match in _MEMORY.finditer(text):
        day = None if match[1] == "undated" else datetime.fromisoformat(match[1]).replace(tzinfo=UTC).timestamp()
        found.append(ShownMemory(f"mem_{len(found)}", day, match.span(2)))
    return found


def _upgrade_recalled(data: e.MemoryRecalled) -> EventData:
    shown, count = _read_memories(data.section), len(data.reminders)
    reminders = tuple([
        msgspec.structs.replace(reminder, created_at=memory.created_at, excerpt=memory.excerpt)
        for reminder, memory in zip(data.reminders, shown, strict=False)
    ])  # fmt: skip
    return _replace(data, reminders=(*reminders, *data.reminders[len(reminders) :]), notes=tuple(shown[count:]))


def _upgrade_command(data: e.CommandObeyed) -> EventData:
    if usage := _USAGE.fullmatch(data.said):
        found = [float(each or 0) for each in usage.groups()]
        fields = dict(zip(e.SessionUsage.__struct_fields__, found, strict=True))
        return _replace(data, usage=msgspec.convert(fields, e.SessionUsage, strict=False))
    return _replace(data, memories=tuple(found)) if (found := _read_memories(data.said)) else data


_CHANGES: dict[str, Callable[[Any], EventData]] = {
    "agent_spawn": _upgrade_spawn,
    "approval_decided": _upgrade_decision,
    "approval_requested": _upgrade_request,
    "budget_exhausted": _upgrade_exhausted,
    "command_obeyed": _upgrade_command,
    "compaction_failed": _upgrade_compaction,
    "hook_blocked": _upgrade_blocked,
    "llm_error": _upgrade_error,
    "llm_fallback": _upgrade_fallback,
    "memory_recalled": _upgrade_recalled,
    "model_resolved": _upgrade_resolved,
    "quota_exceeded": _upgrade_exhausted,
    "run_end": _upgrade_end,
    "run_recovered": _upgrade_recovered,
    "run_waiting": _upgrade_waiting,
    "tool_call_end": _upgrade_result,
    "tool_call_error": _upgrade_call_error,
}
