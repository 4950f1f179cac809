"""Usage of runs, counted as events are appended.

The sums of a run stay in memory while a worker owns it. They are written when the worker releases the run and every
few seconds. The run row records up to which sequence its usage is written, so the next owner counts the rest from
the journal: nothing is lost or counted twice."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from treadle.domain.envelope import decode_data
from treadle.domain.events import (
    AgentSpawn,
    CompactionFailed,
    CompactionStarted,
    ContextCompacted,
    EventData,
    LlmError,
    LlmRequest,
    LlmResponse,
    ModelResolved,
    UnknownEvent,
)
from treadle.domain.ids import Instant
from treadle.domain.quotas import Quotas
from treadle.domain.runs import RunFacts, Usage
from treadle.domain.users import LOCAL_USER

DAY_SECONDS = 86_400
MAX_UNWRITTEN_SECONDS = 5.0
"""How long the sums of a run stay in memory before they are written."""
RUNS, MODEL_CALLS, INPUT, OUTPUT, CACHE_READ, CACHE_WRITE, TOOL_CALLS, COST, CREDITS, UNPRICED = range(10)
"""Index of each sum in its row."""

Key = tuple[int, str, str, str, str, str]
"""Day, agent, token, model, owner, tags."""
Rows = dict[Key, list[Any]]


NO_TAGS = "[]"
"""As the table holds them."""


class _Limits(Struct, frozen=True):
    cost: float | None = None


class _Agent(Struct, frozen=True):
    name: str
    quotas: Quotas = Quotas()
    limits: _Limits = _Limits()
    budget: str = "own"


class _Tree(Struct, frozen=True):
    cost: float | None = None
    steps: int | None = None


class _Lineage(Struct, frozen=True):
    ceilings: tuple[_Tree, ...] = ()
    quotas: tuple[tuple[str, Quotas], ...] = ()


class _Queued(Struct, frozen=True):
    """The part of `run_queued` that says who pays and whether a ceiling applies."""

    agent: _Agent
    token: str | None = None
    token_quotas: Quotas | None = None
    credits_per_dollar: float = 1.0
    lineage: _Lineage | None = None
    owner: str = LOCAL_USER
    tags: tuple[str, ...] = ()

    @property
    def is_bounded(self) -> bool:
        own = self.agent.limits.cost is not None or self.agent.budget == "shared"
        lineage = self.lineage or _Lineage()
        above = any((tree.cost, tree.steps) != (None, None) for tree in lineage.ceilings)
        quotas = [quotas for _, quotas in lineage.quotas]
        return own or above or _has_ceiling(self.agent.quotas, self.token_quotas, *quotas)


class _Resolved(Struct, frozen=True):
    provider: str
    model: str


_queued = msgspec.json.Decoder(_Queued)
_resolved = msgspec.json.Decoder(_Resolved)


class RunProgress(NamedTuple):
    """What is added to the summary of a run in progress."""

    cost: float
    tokens: int
    steps: int
    """So many are known."""
    facts: RunFacts


@dataclass(slots=True)
class Payer:
    """Who pays for a run, and the usage that is not written yet."""

    agent: str = ""
    token: str = ""
    rate: float = 1.0
    """Credits per dollar."""
    owner: str = LOCAL_USER
    tags: str = NO_TAGS
    """As the table holds them."""
    is_bounded: bool = False
    """Whether a ceiling applies, so that the run may hold reservations."""
    model: str = ""
    steps: int = 0
    writer: str = ""
    """The model that writes the current summary."""
    counted: bool = False
    """Whether the run itself is counted."""
    asking: bool = False
    """Whether a model call has started and has no recorded end."""
    rows: Rows = field(default_factory=Rows)
    since: Instant = 0.0
    """When the oldest unwritten usage was counted."""

    def row(self, at: Instant, model: str | None = None) -> list[Any]:
        """Return the sums of that day. Counts the run itself on the first call."""
        if not self.rows:
            self.since = at
        model = self.model if model is None else model
        key = (int(at // DAY_SECONDS), self.agent, self.token, model, self.owner, self.tags)
        row = self.rows.get(key)
        if row is None:
            row = self.rows[key] = [0, 0, 0, 0, 0, 0, 0, 0.0, 0.0, 0]
        if not self.counted:
            self.counted = True
            row[RUNS] += 1
        return row

    def is_due(self, now: Instant) -> bool:
        return bool(self.rows) and now - self.since >= MAX_UNWRITTEN_SECONDS

    def take(self) -> Rows:
        """Return the unwritten rows and clear them."""
        rows, self.rows = self.rows, {}
        return rows

    def build_progress(self, rows: Rows) -> RunProgress:
        """Return what these rows add to the summary of a run in progress."""
        sums = [sum(values) for values in zip(*rows.values(), strict=True)]
        facts = RunFacts(model=self.model, unpriced_calls=sums[UNPRICED])
        return RunProgress(sums[COST], sums[INPUT] + sums[OUTPUT], self.steps, facts)


def rebuild_payer(events: Iterable[Any], written: int) -> Payer:
    """Return the payer of a run from all of its stored events, with the usage after the sequence `written`."""
    payer = Payer()
    for sequence, _, timestamp, type_, version, raw in events:
        if type_ == "run_queued":
            queued = _queued.decode(raw)
            payer.agent, payer.token, payer.rate = queued.agent.name, queued.token or "", queued.credits_per_dollar
            payer.owner, payer.tags = queued.owner, _encode_tags(queued.tags)
            payer.is_bounded = queued.is_bounded
        elif type_ not in COUNTERS:
            continue
        elif sequence > written:
            data = decode_data(type_, raw, version)
            if not isinstance(data, UnknownEvent):  # only a later version can count it
                COUNTERS[type_](payer, data, timestamp)
        elif type_ == "model_resolved":
            found = _resolved.decode(raw)
            payer.model = f"{found.provider}/{found.model}"
        elif type_ in CALL_STARTS:
            payer.counted = payer.counted or payer.asking  # together with a call whose end was lost
            payer.asking = True
        else:
            payer.asking, payer.counted = payer.asking and type_ not in CALL_ENDS, True
    return payer


def _encode_tags(tags: tuple[str, ...]) -> str:
    return msgspec.json.encode(sorted(tags)).decode() if tags else NO_TAGS


def decode_tags(written: str) -> tuple[str, ...]:
    """Return the tags in a row of usage."""
    return () if written == NO_TAGS else msgspec.json.decode(written, type=tuple[str, ...])


def _has_ceiling(*quotas: Quotas | None) -> bool:
    return any(
        each.max_llm_tokens_per_hour is not None or each.credits is not None for each in quotas if each is not None
    )


# ── Counters by event type ───────────────────────────────────────────────────────────────────────────────


def _set_model(payer: Payer, data: EventData, _: Instant) -> None:
    assert isinstance(data, ModelResolved)
    payer.model = f"{data.provider}/{data.model}"


def _count_request(payer: Payer, data: EventData, at: Instant) -> None:
    _count_lost_call(payer, at)
    payer.asking = True
    if isinstance(data, LlmRequest):
        payer.steps = data.step
    elif isinstance(data, CompactionStarted):
        payer.writer = f"{data.provider}/{data.model}"


def _count_response(payer: Payer, data: EventData, at: Instant) -> None:
    assert isinstance(data, LlmResponse | LlmError)
    row = payer.row(at)
    if payer.asking or isinstance(data, LlmResponse):  # an error without a request: no provider was called
        payer.asking = False
        _add(row, payer.rate, data.usage, data.cost)


def _count_compaction(payer: Payer, data: EventData, at: Instant) -> None:
    assert isinstance(data, ContextCompacted | CompactionFailed)
    payer.asking = False
    _add(payer.row(at, payer.writer or payer.model), payer.rate, data.usage, data.cost, data.calls)


def _add(row: list[Any], rate: float, usage: Usage, cost: float | None, calls: int = 1) -> None:
    row[MODEL_CALLS] += calls
    row[INPUT] += usage.input_tokens
    row[OUTPUT] += usage.output_tokens
    row[CACHE_READ] += usage.cache_read_tokens
    row[CACHE_WRITE] += usage.cache_write_tokens
    if cost is None:
        row[UNPRICED] += 1
    else:
        row[COST] += cost
        row[CREDITS] += cost * rate


def _count_tool_call(payer: Payer, _: EventData, at: Instant) -> None:
    payer.row(at)[TOOL_CALLS] += 1


def _count_delegation(payer: Payer, data: EventData, at: Instant) -> None:
    assert isinstance(data, AgentSpawn)
    payer.row(at)[TOOL_CALLS] += data.end is None  # otherwise it is an evaluator, not a tool call


def _count_end(payer: Payer, _: EventData, at: Instant) -> None:
    _count_lost_call(payer, at)
    if not payer.counted:
        payer.row(at)


def _count_lost_call(payer: Payer, at: Instant) -> None:
    """Count a model call whose end is unknown because its worker died."""
    if payer.asking:
        payer.asking = False
        payer.row(at)[MODEL_CALLS] += 1


CALL_STARTS = frozenset(("llm_request", "compaction_started"))
CALL_ENDS = frozenset(("llm_response", "llm_error", "context_compacted", "compaction_failed"))
"""Event types that end a model call and settle its reservation."""
COUNTERS: dict[str, Callable[[Payer, EventData, Instant], None]] = {
    "model_resolved": _set_model,
    "llm_request": _count_request,
    "compaction_started": _count_request,
    "llm_response": _count_response,
    "llm_error": _count_response,
    "context_compacted": _count_compaction,
    "compaction_failed": _count_compaction,
    "tool_call_start": _count_tool_call,
    "client_call_requested": _count_tool_call,
    "agent_spawn": _count_delegation,
    "run_end": _count_end,
}
