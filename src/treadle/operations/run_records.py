"""What a run records of itself, step by step, read from its journal: also of a run that is still under way.

What the steps used, and the summaries between them, adds up to the metrics of the run."""

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from treadle.domain import events as e
from treadle.domain.envelope import Event
from treadle.domain.events import CallErrorKind, EventData, ModelErrorKind, StopReason
from treadle.domain.ids import Instant
from treadle.domain.messages import Text, Thinking, ToolUse
from treadle.domain.runs import Metrics, Usage

CallStatus = Literal["asked", "running", "ok", "blocked"] | CallErrorKind
"""Asked for and not begun; begun; ended well; refused by a guard or a hook; or what went wrong."""


class CallRecord(Struct, frozen=True):
    """One call of a tool."""

    call_id: str
    tool: str
    input: str
    """The arguments it ran with; those asked for, where it did not run."""
    status: CallStatus = "asked"
    output: str = ""
    """What the model was told of it."""
    duration_ms: int = 0
    attempts: int = 0
    """How often it was begun."""
    exit_code: int | None = None
    truncated: bool = False


class FailureRecord(Struct, frozen=True):
    """An attempt at a model call that failed."""

    attempt: int
    kind: ModelErrorKind
    message: str
    provider: str
    model: str
    duration_ms: int = 0


class Spending(Struct, frozen=True):
    """What model calls have used."""

    input_tokens: int = 0
    output_tokens: int = 0
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    estimated: bool = False
    cost: float = 0.0
    unpriced_calls: int = 0
    model_ms: int = 0

    def plus(self, usage: Usage, duration_ms: int, cost: float | None) -> "Spending":
        return Spending(
            self.input_tokens + usage.input_tokens,
            self.output_tokens + usage.output_tokens,
            self.cache_read_tokens + usage.cache_read_tokens,
            self.cache_write_tokens + usage.cache_write_tokens,
            self.estimated or usage.estimated,
            self.cost + (cost or 0.0),
            self.unpriced_calls + (cost is None),
            self.model_ms + duration_ms,
        )


class StepRecord(Struct, frozen=True, tag="step", tag_field="record"):
    """One turn of the model, and the calls it asked for."""

    number: int
    began_at: datetime
    provider: str = ""
    model: str = ""
    """Who answered, or was asked last."""
    reasoning: str = ""
    text: str = ""
    stop: StopReason | None = None
    """None: there is no reply."""
    attempts: int = 0
    """Requests sent, failed ones included."""
    repeated_calls: int = 0
    """Requests sent again because a crash hid the reply."""
    first_token_ms: int | None = None
    duration_ms: int = 0
    is_over: bool = False
    used: Spending = Spending()
    failures: tuple[FailureRecord, ...] = ()
    calls: tuple[CallRecord, ...] = ()

    @property
    def tool_ms(self) -> int:
        return sum(call.duration_ms for call in self.calls)


class SummaryRecord(Struct, frozen=True, tag="summary", tag_field="record"):
    """A summary that was asked for between two steps, because the conversation had grown long."""

    before_step: int
    """The step that came next, or would have."""
    provider: str
    model: str
    attempts: int = 1
    repeated_calls: int = 0
    is_done: bool = False
    used: Spending = Spending()


class RunSteps(Struct, frozen=True):
    """All of it."""

    steps: tuple[StepRecord, ...]
    summaries: tuple[SummaryRecord, ...]
    metrics: Metrics
    cache_hit_rate: float
    overhead_ms: int
    """Time that was spent neither in the model nor in tools."""


def steps_of(events: Iterable[Event], now: Instant | None = None) -> list[StepRecord]:
    """The steps of a run; what is under way lasts until now, or until the last event."""
    return list(records_of(events, now).steps)


def records_of(events: Iterable[Event], now: Instant | None = None) -> RunSteps:
    """The steps, the summaries between them, and what they add up to; where the run has ended, as it ended."""
    reading = _Reading()
    for event in events:
        reading.take(event)
    at = reading.at if now is None else max(now, reading.at)
    steps, summaries = reading.steps(at), tuple(reading.summaries)
    metrics = reading.end.metrics if reading.end is not None else reading.totals(steps, at)
    return RunSteps(steps, summaries, metrics, metrics.cache_hit_rate, metrics.overhead_ms)


def totals(
    steps: Iterable[StepRecord],
    summaries: Iterable[SummaryRecord],
    duration_ms: int,
    credits_per_dollar: float = 1.0,
) -> Metrics:
    """What steps and summaries add up to."""
    taken, between = tuple(steps), tuple(summaries)
    used = [record.used for record in (*taken, *between)]
    cost = sum((each.cost for each in used), 0.0)
    firsts = [step.first_token_ms for step in taken if step.first_token_ms is not None]
    return Metrics(
        steps=max((step.number for step in taken), default=0),
        model_calls=sum(record.attempts for record in (*taken, *between)),
        repeated_calls=sum(record.repeated_calls for record in (*taken, *between)),
        actions=sum(call.attempts for step in taken for call in step.calls),
        input_tokens=sum(each.input_tokens for each in used),
        output_tokens=sum(each.output_tokens for each in used),
        cache_read_tokens=sum(each.cache_read_tokens for each in used),
        cache_write_tokens=sum(each.cache_write_tokens for each in used),
        estimated=any(each.estimated for each in used),
        cost=cost,
        credits=cost * credits_per_dollar,
        unpriced_calls=sum(each.unpriced_calls for each in used),
        duration_ms=duration_ms,
        model_ms=sum(each.model_ms for each in used),
        tool_ms=sum(step.tool_ms for step in taken),
        first_token_ms=firsts[0] if firsts else None,
    )


class _Reading:
    """A journal, as far as it was read."""

    def __init__(self) -> None:
        self.at: Instant = 0.0
        self.end: e.RunEnd | None = None
        self.summaries: list[SummaryRecord] = []
        self._rate = 1.0
        self._started_at: Instant | None = None
        self._steps: list[StepRecord] = []
        self._calls: dict[str, CallRecord] = {}
        """Of the latest step, in the order in which they were asked for."""

    def take(self, event: Event) -> None:
        self.at = event.timestamp
        takes = _TAKING.get(type(event.data))
        if takes is not None:
            takes(self, event.data)

    def steps(self, at: Instant) -> tuple[StepRecord, ...]:
        """With the one that is under way as it is at that time."""
        self._put_calls()
        if self._steps and not self._steps[-1].is_over:
            last = self._steps[-1]
            self._change(duration_ms=max(0, round((at - last.began_at.timestamp()) * 1000)))
        return tuple(self._steps)

    def totals(self, steps: Iterable[StepRecord], at: Instant) -> Metrics:
        elapsed = 0 if self._started_at is None else max(0, round((at - self._started_at) * 1000))
        return totals(steps, self.summaries, elapsed, self._rate)

    def _change(self, **changes: Any) -> None:
        if self._steps:
            self._steps[-1] = msgspec.structs.replace(self._steps[-1], **changes)

    def _put_calls(self) -> None:
        self._change(calls=tuple(self._calls.values()))

    def _spend(self, usage: Usage, duration_ms: int, cost: float | None) -> None:
        if self._steps:
            self._change(used=self._steps[-1].used.plus(usage, duration_ms, cost))

    # ── The run ──

    def queued(self, data: e.RunQueued) -> None:
        self._rate = data.credits_per_dollar

    def run_started(self, _: e.RunStart) -> None:
        self._started_at = self.at

    def run_ended(self, data: e.RunEnd) -> None:
        self.end = data

    # ── Steps and model calls ──

    def step_started(self, data: e.StepStart) -> None:
        self._put_calls()
        self._calls = {}
        self._steps.append(StepRecord(data.step, datetime.fromtimestamp(self.at, UTC)))

    def step_ended(self, data: e.StepEnd) -> None:
        self._change(duration_ms=data.duration_ms, is_over=True)

    def requested(self, data: e.LlmRequest) -> None:
        if self._steps:
            last = self._steps[-1]
            self._change(
                provider=data.provider,
                model=data.model,
                attempts=last.attempts + 1,
                repeated_calls=last.repeated_calls + data.repeats_lost,
            )

    def replied(self, data: e.LlmResponse) -> None:
        self._spend(data.usage, data.duration_ms, data.cost)
        said = "".join(part.text for part in data.parts if isinstance(part, Text))
        thought = "\n\n".join(part.text for part in data.parts if isinstance(part, Thinking) and part.text)
        self._change(reasoning=thought, text=said, stop=data.stop, first_token_ms=data.first_token_ms)
        if data.stop != "interrupted":  # then nothing that it asked for is done
            uses = [part for part in data.parts if isinstance(part, ToolUse)]
            self._calls = {use.call_id: CallRecord(use.call_id, use.name, use.arguments) for use in uses}

    def failed(self, data: e.LlmError) -> None:
        self._spend(data.usage, data.duration_ms, data.cost)
        if self._steps:
            last = self._steps[-1]
            failure = FailureRecord(
                data.attempt, data.kind, data.message, last.provider, last.model, data.duration_ms
            )
            self._change(failures=(*last.failures, failure))

    # ── Summaries ──

    def summing_up(self, data: e.CompactionStarted) -> None:
        following = self._steps[-1].number + self._steps[-1].is_over if self._steps else 1
        self.summaries.append(
            SummaryRecord(following, data.provider, data.model, repeated_calls=int(data.repeats_lost))
        )

    def summed_up(self, data: e.ContextCompacted | e.CompactionFailed) -> None:
        if not self.summaries:
            return
        last = self.summaries[-1]
        self.summaries[-1] = msgspec.structs.replace(
            last,
            attempts=data.calls,
            is_done=isinstance(data, e.ContextCompacted),
            used=last.used.plus(data.usage, data.duration_ms, data.cost),
        )

    # ── Calls ──

    def call_started(self, data: e.ToolCallStart) -> None:
        call = self._calls.get(data.call_id) or CallRecord(data.call_id, data.name, data.arguments)
        self._calls[data.call_id] = msgspec.structs.replace(
            call, input=data.arguments, status="running", attempts=call.attempts + 1
        )

    def call_delegated(self, data: e.AgentSpawn) -> None:
        call = self._calls.get(data.call_id)
        if call is not None:  # else nobody called for it: it judges the run
            self._calls[data.call_id] = msgspec.structs.replace(
                call, input=data.arguments, status="running", attempts=call.attempts + 1
            )

    def call_ended(self, data: e.ToolCallEnd) -> None:
        self._call_over(data, "ok", data.duration_ms, data.exit_code, data.truncated)

    def call_failed(self, data: e.ToolCallError) -> None:
        self._call_over(data, data.kind, data.duration_ms, data.exit_code, data.truncated)

    def call_blocked(self, data: e.ToolCallBlocked | e.HookBlocked) -> None:
        self._call_over(data, "blocked")

    def _call_over(
        self,
        data: e.ToolCallEnd | e.ToolCallError | e.ToolCallBlocked | e.HookBlocked,
        status: CallStatus,
        duration_ms: int = 0,
        exit_code: int | None = None,
        truncated: bool = False,
    ) -> None:
        call = self._calls.get(data.call_id) or CallRecord(data.call_id, data.name, "")
        self._calls[data.call_id] = msgspec.structs.replace(
            call,
            status=status,
            output=data.content,
            duration_ms=duration_ms,
            exit_code=exit_code,
            truncated=truncated,
        )


_TAKING: Final[dict[type[EventData], Callable[[_Reading, Any], None]]] = {
    e.RunQueued: _Reading.queued,
    e.RunStart: _Reading.run_started,
    e.RunEnd: _Reading.run_ended,
    e.StepStart: _Reading.step_started,
    e.StepEnd: _Reading.step_ended,
    e.LlmRequest: _Reading.requested,
    e.LlmResponse: _Reading.replied,
    e.LlmError: _Reading.failed,
    e.CompactionStarted: _Reading.summing_up,
    e.ContextCompacted: _Reading.summed_up,
    e.CompactionFailed: _Reading.summed_up,
    e.ToolCallStart: _Reading.call_started,
    e.AgentSpawn: _Reading.call_delegated,
    e.ToolCallEnd: _Reading.call_ended,
    e.ToolCallError: _Reading.call_failed,
    e.ToolCallBlocked: _Reading.call_blocked,
    e.HookBlocked: _Reading.call_blocked,
}
