"""The records of a run, step by step, derived from its journal, also for a run in progress.

The usage of the steps, and of the summaries between them, adds up to the metrics of the run."""

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

CallStatus = Literal["asked", "client", "running", "ok", "blocked"] | CallErrorKind
"""Requested and not started; with the client, which runs it; running; succeeded; refused by a guard or a hook; or
the kind of error."""


class CallRecord(Struct, frozen=True):
    """One tool call."""

    call_id: str
    tool: str
    input: str
    """The arguments that it ran with; if it did not run, those that the model requested."""
    status: CallStatus = "asked"
    output: str = ""
    """The result that the model received."""
    duration_ms: int = 0
    attempts: int = 0
    """How often it was started."""
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
    """Usage of model calls."""

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
            input_tokens=self.input_tokens + usage.input_tokens,
            output_tokens=self.output_tokens + usage.output_tokens,
            cache_read_tokens=self.cache_read_tokens + usage.cache_read_tokens,
            cache_write_tokens=self.cache_write_tokens + usage.cache_write_tokens,
            estimated=self.estimated or usage.estimated,
            cost=self.cost + (cost or 0.0),
            unpriced_calls=self.unpriced_calls + (cost is None),
            model_ms=self.model_ms + duration_ms,
        )


class StepRecord(Struct, frozen=True, tag="step", tag_field="record"):
    """One model turn with its tool calls."""

    number: int
    began_at: datetime
    provider: str = ""
    model: str = ""
    """The model that answered, or the last one that was called."""
    reasoning: str = ""
    text: str = ""
    stop: StopReason | None = None
    """None if there is no reply."""
    attempts: int = 0
    """Requests sent, including failed ones."""
    repeated_calls: int = 0
    """Requests sent again because a crash lost the reply."""
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
    """A compaction between two steps, because the conversation had become too long."""

    before_step: int
    """The step after it, whether it happened or not."""
    provider: str
    model: str
    attempts: int = 1
    repeated_calls: int = 0
    is_done: bool = False
    used: Spending = Spending()


class RunSteps(Struct, frozen=True):
    """The steps and summaries of a run, with their totals."""

    steps: tuple[StepRecord, ...]
    summaries: tuple[SummaryRecord, ...]
    metrics: Metrics
    cache_hit_rate: float
    overhead_ms: int
    """Time that was spent neither in the model nor in tools."""


def build_run_steps(events: Iterable[Event], now: Instant | None = None) -> RunSteps:
    """Return the steps, the summaries between them, and their totals. A step in progress lasts until `now`, or
    until the last event. If the run has ended, use its final metrics."""
    builder = _RecordBuilder()
    for event in events:
        builder.take(event)
    at = builder.at if now is None else max(now, builder.at)
    steps, summaries = builder.steps(at), tuple(builder.summaries)
    metrics = builder.end.metrics if builder.end is not None else builder.totals(steps, at)
    return RunSteps(steps, summaries, metrics, metrics.cache_hit_rate, metrics.overhead_ms)


def compute_totals(
    steps: Iterable[StepRecord],
    summaries: Iterable[SummaryRecord],
    duration_ms: int,
    credits_per_dollar: float = 1.0,
) -> Metrics:
    """Return the sum of steps and summaries."""
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


class _RecordBuilder:
    """Builds records while a journal is read."""

    def __init__(self) -> None:
        self.at: Instant = 0.0
        self.end: e.RunEnd | None = None
        self.summaries: list[SummaryRecord] = []
        self._rate = 1.0
        self._started_at: Instant | None = None
        self._steps: list[StepRecord] = []
        self._calls: dict[str, CallRecord] = {}
        """The calls of the latest step, in the order in which the model requested them."""

    def take(self, event: Event) -> None:
        self.at = event.timestamp
        handle = _HANDLERS.get(type(event.data))
        if handle is not None:
            handle(self, event.data)

    def steps(self, at: Instant) -> tuple[StepRecord, ...]:
        """Return the steps, with the step in progress as it is at this time."""
        self._put_calls()
        if self._steps and not self._steps[-1].is_over:
            last = self._steps[-1]
            self._change(duration_ms=max(0, round((at - last.began_at.timestamp()) * 1000)))
        return tuple(self._steps)

    def totals(self, steps: Iterable[StepRecord], at: Instant) -> Metrics:
        elapsed = 0 if self._started_at is None else max(0, round((at - self._started_at) * 1000))
        return compute_totals(steps, self.summaries, elapsed, self._rate)

    def _change(self, **changes: Any) -> None:
        if self._steps:
            self._steps[-1] = msgspec.structs.replace(self._steps[-1], **changes)

    def _put_calls(self) -> None:
        self._change(calls=tuple(self._calls.values()))

    def _spend(self, usage: Usage, duration_ms: int, cost: float | None) -> None:
        if self._steps:
            self._change(used=self._steps[-1].used.plus(usage, duration_ms, cost))

    # ── The run ──

    def on_run_queued(self, data: e.RunQueued) -> None:
        self._rate = data.credits_per_dollar

    def on_run_start(self, _: e.RunStart) -> None:
        self._started_at = self.at

    def on_run_end(self, data: e.RunEnd) -> None:
        self.end = data

    # ── Steps and model calls ──

    def on_step_start(self, data: e.StepStart) -> None:
        self._put_calls()
        self._calls = {}
        self._steps.append(StepRecord(data.step, datetime.fromtimestamp(self.at, UTC)))

    def on_step_end(self, data: e.StepEnd) -> None:
        self._change(duration_ms=data.duration_ms, is_over=True)

    def on_llm_request(self, data: e.LlmRequest) -> None:
        if self._steps:
            last = self._steps[-1]
            self._change(
                provider=data.provider,
                model=data.model,
                attempts=last.attempts + 1,
                repeated_calls=last.repeated_calls + data.repeats_lost,
            )

    def on_llm_response(self, data: e.LlmResponse) -> None:
        self._spend(data.usage, data.duration_ms, data.cost)
        said = "".join(part.text for part in data.parts if isinstance(part, Text))
        thought = "\n\n".join(part.text for part in data.parts if isinstance(part, Thinking) and part.text)
        self._change(reasoning=thought, text=said, stop=data.stop, first_token_ms=data.first_token_ms)
        if data.stop != "interrupted":  # then none of its calls run
            uses = [part for part in data.parts if isinstance(part, ToolUse)]
            self._calls = {use.call_id: CallRecord(use.call_id, use.name, use.arguments) for use in uses}

    def on_llm_error(self, data: e.LlmError) -> None:
        self._spend(data.usage, data.duration_ms, data.cost)
        if self._steps:
            last = self._steps[-1]
            failure = FailureRecord(
                attempt=data.attempt,
                kind=data.kind,
                message=data.message,
                provider=last.provider,
                model=last.model,
                duration_ms=data.duration_ms,
            )
            self._change(failures=(*last.failures, failure))

    # ── Summaries ──

    def on_compaction_started(self, data: e.CompactionStarted) -> None:
        following = self._steps[-1].number + self._steps[-1].is_over if self._steps else 1
        self.summaries.append(
            SummaryRecord(following, data.provider, data.model, repeated_calls=int(data.repeats_lost))
        )

    def on_compaction_end(self, data: e.ContextCompacted | e.CompactionFailed) -> None:
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

    def on_tool_call_start(self, data: e.ToolCallStart) -> None:
        call = self._calls.get(data.call_id) or CallRecord(data.call_id, data.name, data.arguments)
        self._calls[data.call_id] = msgspec.structs.replace(
            call, input=data.arguments, status="running", attempts=call.attempts + 1
        )

    def on_client_call(self, data: e.ClientCallRequested) -> None:
        call = self._calls.get(data.call_id) or CallRecord(data.call_id, data.name, data.arguments)
        self._calls[data.call_id] = msgspec.structs.replace(call, input=data.arguments, status="client")

    def on_agent_spawn(self, data: e.AgentSpawn) -> None:
        call = self._calls.get(data.call_id)
        if call is not None:  # otherwise it is an evaluator, not a tool call
            self._calls[data.call_id] = msgspec.structs.replace(
                call, input=data.arguments, status="running", attempts=call.attempts + 1
            )

    def on_tool_call_end(self, data: e.ToolCallEnd) -> None:
        self._end_call(data, "ok", data.duration_ms, data.exit_code, data.truncated)

    def on_tool_call_error(self, data: e.ToolCallError) -> None:
        self._end_call(data, data.kind, data.duration_ms, data.exit_code, data.truncated)

    def on_call_blocked(self, data: e.ToolCallBlocked | e.HookBlocked) -> None:
        self._end_call(data, "blocked")

    def _end_call(
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


_HANDLERS: Final[dict[type[EventData], Callable[[_RecordBuilder, Any], None]]] = {
    e.RunQueued: _RecordBuilder.on_run_queued,
    e.RunStart: _RecordBuilder.on_run_start,
    e.RunEnd: _RecordBuilder.on_run_end,
    e.StepStart: _RecordBuilder.on_step_start,
    e.StepEnd: _RecordBuilder.on_step_end,
    e.LlmRequest: _RecordBuilder.on_llm_request,
    e.LlmResponse: _RecordBuilder.on_llm_response,
    e.LlmError: _RecordBuilder.on_llm_error,
    e.CompactionStarted: _RecordBuilder.on_compaction_started,
    e.ContextCompacted: _RecordBuilder.on_compaction_end,
    e.CompactionFailed: _RecordBuilder.on_compaction_end,
    e.ToolCallStart: _RecordBuilder.on_tool_call_start,
    e.ClientCallRequested: _RecordBuilder.on_client_call,
    e.AgentSpawn: _RecordBuilder.on_agent_spawn,
    e.ToolCallEnd: _RecordBuilder.on_tool_call_end,
    e.ToolCallError: _RecordBuilder.on_tool_call_error,
    e.ToolCallBlocked: _RecordBuilder.on_call_blocked,
    e.HookBlocked: _RecordBuilder.on_call_blocked,
}
