"""Builds the spans of a run from its events: the run, each model call with its attempts, each tool call.

A span is a value, created when it has ended. It starts at the time of its first event, whichever process was
running then."""

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import msgspec
from msgspec import Struct

from treadle.domain import events as e
from treadle.domain.envelope import Origin
from treadle.domain.events import EventData
from treadle.domain.ids import Instant, RunId
from treadle.domain.lineage import DELEGATION_TOOLS
from treadle.domain.messages import Message, Part, Text, Thinking, ToolUse
from treadle.domain.runs import Usage
from treadle.telemetry import span_names
from treadle.telemetry.guards import WARNINGS

Value = str | int | float | bool | tuple[str, ...]
MAX_SPAN_EVENTS = 128
"""Limits the memory for a run that waits and resumes again and again."""
_FINISHED: Final[Mapping[str, str]] = {
    "end_turn": "stop",
    "max_tokens": "length",
    "tool_use": "tool_call",
    "refusal": "content_filter",
}


class SpanEvent(Struct, frozen=True):
    """Something that happened within a span."""

    name: str
    at: Instant
    attributes: Mapping[str, Value] = {}


class Span(Struct, frozen=True):
    """An operation that has ended."""

    key: str
    """Its name within the run: the sequence of its first event, or the call id if a child run handles the call;
    empty for the run itself."""
    name: str
    kind: Literal["internal", "client"]
    began_at: Instant
    ended_at: Instant
    attributes: Mapping[str, Value]
    moments: tuple[SpanEvent, ...] = ()
    error: str = ""
    """The type of error, or empty."""


class SpanPlace(Struct, frozen=True):
    """The position of a span: its run and its key."""

    run_id: RunId
    key: str = ""


class _Open:
    """A span that has not ended."""

    def __init__(self, key: str, at: Instant, name: str, attributes: dict[str, Value]) -> None:
        self.key = key
        self.at = at
        self.name = name
        self.attributes = attributes
        self.moments: list[SpanEvent] = []

    def add(self, name: str, at: Instant, **attributes: Value) -> None:
        if len(self.moments) < MAX_SPAN_EVENTS:
            known = {_MOMENT_NAMES[key]: value for key, value in attributes.items()}
            self.moments.append(SpanEvent(name, at, known))

    def end(
        self,
        at: Instant,
        more: Mapping[str, Value],
        error: str = "",
        kind: Literal["internal", "client"] = "internal",
    ) -> Span:
        wrong = {span_names.ERROR_TYPE: error} if error else {}
        attributes = {**self.attributes, **more, **wrong}
        return Span(
            key=self.key,
            name=self.name,
            kind=kind,
            began_at=self.at,
            ended_at=max(self.at, at),
            attributes=attributes,
            moments=tuple(self.moments),
            error=error,
        )


_MOMENT_NAMES: Final = {
    "attempt": span_names.ATTEMPT,
    "delay": span_names.DELAY,
    "error": span_names.ERROR_TYPE,
    "reason": span_names.REASON,
    "tool": span_names.TOOL_NAME,
}


class RunSpans:
    """Builds the spans of one run as its events arrive."""

    def __init__(self, origin: Origin, contents: bool) -> None:
        self.run_id = origin.run_id
        self.root = origin.run_id
        """The run whose trace contains this run."""
        self.above: SpanPlace | None = None
        """The parent span, or None."""
        self.trace_parent = ""
        """The span of the program in which the run was submitted, as a W3C `traceparent`."""
        self._contents = contents
        self._common: dict[str, Value] = {
            span_names.RUN_ID: origin.run_id,
            span_names.CONVERSATION_ID: origin.session_id,
            span_names.AGENT_ID: origin.agent_id,
        }
        if origin.parent_run_id is not None:
            self._common[span_names.PARENT_RUN_ID] = origin.parent_run_id
        self._run = _Open("", 0.0, span_names.INVOKE_AGENT, {})
        self._settings: dict[str, Value] = {}
        self._chat: _Open | None = None
        self._requested_model: tuple[str, str] = ("", "")
        self._summary: _Open | None = None
        self._calls: dict[str, _Open] = {}

    def apply(self, sequence: int, at: Instant, data: EventData) -> tuple[Span, ...]:
        """Apply one event, and return the spans that it ends."""
        tells = _HANDLERS.get(type(data))
        if tells is not None:
            return tells(self, str(sequence), at, data)
        if type(data) in _MOMENTS:
            self._run.add(_MOMENTS[type(data)], at)
        return ()

    def _begin(self, key: str, at: Instant, operation: str, what: str, **attributes: Value) -> _Open:
        return _Open(
            key, at, f"{operation} {what}", {span_names.OPERATION: operation, **self._common, **attributes}
        )

    # ── The run ──

    def on_run_queued(self, key: str, at: Instant, data: e.RunQueued) -> tuple[Span, ...]:
        agent, settings, lineage = data.agent, data.agent.model_settings, data.lineage
        self.trace_parent = data.trace_parent
        if lineage is not None and lineage.above:
            self.root, parent = lineage.root, lineage.above[-1]
            self.above = SpanPlace(parent.run_id, "" if lineage.judges else _call_key(parent.call_id))
        self._common[span_names.AGENT_NAME] = agent.name
        if data.tags:
            self._common[span_names.TAGS] = data.tags
        self._common |= {span_names.METADATA + name: value for name, value in data.metadata.items()}
        if settings.max_tokens is not None:
            self._settings[span_names.REQUEST_MAX_TOKENS] = settings.max_tokens
        if settings.temperature is not None:
            self._settings[span_names.REQUEST_TEMPERATURE] = settings.temperature
        self._run = self._begin("", at, span_names.INVOKE_AGENT, agent.name)
        return ()

    def on_user_message(self, key: str, at: Instant, data: e.UserMessage) -> tuple[Span, ...]:
        if self._contents:
            self._run.attributes[span_names.INPUT_MESSAGES] = _encode_message(data.message)
        return ()

    def on_model_resolved(self, key: str, at: Instant, data: e.ModelResolved) -> tuple[Span, ...]:
        self._run.attributes |= {span_names.PROVIDER: data.provider, span_names.REQUEST_MODEL: data.model}
        return ()

    def on_run_waiting(self, key: str, at: Instant, data: e.RunWaiting) -> tuple[Span, ...]:
        self._run.add("run_waiting", at, reason=data.reason)
        return ()

    def on_run_end(self, key: str, at: Instant, data: e.RunEnd) -> tuple[Span, ...]:
        used = data.metrics
        more: dict[str, Value] = {
            span_names.OUTCOME: data.outcome,
            span_names.STEPS: used.steps,
            span_names.RUN_COST: used.cost,
            span_names.RUN_INPUT_TOKENS: used.input_tokens,
            span_names.RUN_OUTPUT_TOKENS: used.output_tokens,
        }
        if self._contents:
            stop = "end_turn" if data.status == "completed" else data.outcome
            more[span_names.OUTPUT_MESSAGES] = _encode_message(Message("assistant", (Text(data.text),)), stop)
        error = data.outcome if data.status == "failed" else ""
        cut = data.outcome
        return (
            *(call.end(at, {}, cut) for call in self._calls.values()),
            *self._end_chat(at, {}, cut),
            self._run.end(at, more, error),
        )

    # ── Model calls ──

    def on_llm_request(self, key: str, at: Instant, data: e.LlmRequest) -> tuple[Span, ...]:
        chat, requested_model = self._chat, (data.provider, data.model)
        given_up: tuple[Span, ...] = ()
        if chat is not None and self._requested_model != requested_model:
            given_up, chat = self._end_chat(at, {}, "fallback"), None
        if chat is None:
            chat = self._chat = self._begin(key, at, span_names.CHAT, data.model)
            chat.attributes |= {
                span_names.PROVIDER: data.provider,
                span_names.REQUEST_MODEL: data.model,
                span_names.REQUEST_STREAM: True,
                span_names.STEP: data.step,
                **self._settings,
            }
            self._requested_model = requested_model
        elif data.repeats_lost:
            chat.add("reply_lost", at, attempt=data.attempt)
        chat.add("attempt", at, attempt=data.attempt)
        return given_up

    def on_llm_response(self, key: str, at: Instant, data: e.LlmResponse) -> tuple[Span, ...]:
        more = _usage_attributes(data.usage, data.cost)
        more |= {
            span_names.RESPONSE_MODEL: self._requested_model[1],
            span_names.FINISH_REASONS: (_FINISHED.get(data.stop, data.raw_stop or data.stop),),
            span_names.ATTEMPT: data.attempt,
        }
        if data.first_token_ms is not None:
            more[span_names.FIRST_CHUNK] = data.first_token_ms / 1000
        if self._contents:
            more[span_names.OUTPUT_MESSAGES] = _encode_message(Message("assistant", data.parts), data.stop)
        return self._end_chat(at, more, "")

    def on_llm_error(self, key: str, at: Instant, data: e.LlmError) -> tuple[Span, ...]:
        if self._chat is not None:
            self._chat.add("attempt_failed", at, attempt=data.attempt, error=data.kind)
            self._chat.attributes[span_names.ERROR_TYPE] = data.kind
        return ()

    def on_llm_retry(self, key: str, at: Instant, data: e.LlmRetry) -> tuple[Span, ...]:
        if self._chat is not None:
            self._chat.add("retry", at, attempt=data.attempt, delay=data.delay_ms)
        return ()

    def on_llm_fallback(self, key: str, at: Instant, data: e.LlmFallback) -> tuple[Span, ...]:
        return self._end_chat(at, {}, "fallback")

    def _end_chat(self, at: Instant, more: Mapping[str, Value], error: str) -> tuple[Span, ...]:
        chat, self._chat = self._chat, None
        if chat is None:
            return ()
        last = chat.attributes.pop(span_names.ERROR_TYPE, "")
        return (chat.end(at, more, str(last) or error if error else "", "client"),)

    # ── Summaries ──

    def on_compaction_started(self, key: str, at: Instant, data: e.CompactionStarted) -> tuple[Span, ...]:
        summary = self._summary = self._begin(key, at, span_names.CHAT, data.model)
        summary.attributes |= {
            span_names.PROVIDER: data.provider,
            span_names.REQUEST_MODEL: data.model,
            span_names.PURPOSE: span_names.SUMMARY,
        }
        return ()

    def on_context_compacted(self, key: str, at: Instant, data: e.ContextCompacted) -> tuple[Span, ...]:
        return self._end_summary(at, _usage_attributes(data.usage, data.cost), "")

    def on_compaction_failed(self, key: str, at: Instant, data: e.CompactionFailed) -> tuple[Span, ...]:
        return self._end_summary(at, _usage_attributes(data.usage, data.cost), "compaction_failed")

    def _end_summary(self, at: Instant, more: Mapping[str, Value], error: str) -> tuple[Span, ...]:
        summary, self._summary = self._summary, None
        return () if summary is None else (summary.end(at, more, error, "client"),)

    # ── Tool calls ──

    def on_tool_call_start(self, key: str, at: Instant, data: e.ToolCallStart) -> tuple[Span, ...]:
        call = self._calls.get(data.call_id)
        if call is None:
            call = self._calls[data.call_id] = self._tool(key, at, data.name, data.call_id)
        call.attributes[span_names.ATTEMPT] = data.attempt
        if self._contents:
            call.attributes[span_names.TOOL_ARGUMENTS] = data.arguments
        return ()

    def on_client_call(self, key: str, at: Instant, data: e.ClientCallRequested) -> tuple[Span, ...]:
        call = self._calls[data.call_id] = self._tool(key, at, data.name, data.call_id)
        if self._contents:
            call.attributes[span_names.TOOL_ARGUMENTS] = data.arguments
        return ()

    def on_agent_spawn(self, key: str, at: Instant, data: e.AgentSpawn) -> tuple[Span, ...]:
        if data.role not in DELEGATION_TOOLS:  # an evaluator, not a tool call
            return ()
        call = self._calls[data.call_id] = self._tool(
            _call_key(data.call_id), at, DELEGATION_TOOLS[data.role], data.call_id
        )
        call.attributes[span_names.CHILD_RUN_ID] = data.run_id
        if self._contents:
            call.attributes[span_names.TOOL_ARGUMENTS] = data.arguments
        return ()

    def on_tool_call_end(self, key: str, at: Instant, data: e.ToolCallEnd) -> tuple[Span, ...]:
        return self._end_call(key, at, data.name, data.call_id, data.content, "")

    def on_tool_call_error(self, key: str, at: Instant, data: e.ToolCallError) -> tuple[Span, ...]:
        return self._end_call(key, at, data.name, data.call_id, data.content, data.kind)

    def on_call_blocked(self, key: str, at: Instant, data: e.ToolCallBlocked | e.HookBlocked) -> tuple[Span, ...]:
        return self._end_call(key, at, data.name, data.call_id, data.content, "blocked")

    def _end_call(
        self, key: str, at: Instant, name: str, call_id: str, content: str, error: str
    ) -> tuple[Span, ...]:
        call = self._calls.pop(call_id, None) or self._tool(key, at, name, call_id)
        more: dict[str, Value] = {span_names.TOOL_RESULT: content} if self._contents else {}
        return (call.end(at, more, error),)

    def _tool(self, key: str, at: Instant, name: str, call_id: str) -> _Open:
        call = self._begin(key, at, span_names.EXECUTE_TOOL, name)
        call.attributes |= {
            span_names.TOOL_NAME: name,
            span_names.TOOL_CALL_ID: call_id,
            span_names.TOOL_TYPE: "function",
        }
        return call


_Handler = Callable[[RunSpans, str, Instant, Any], tuple[Span, ...]]
_HANDLERS: Final[dict[type[EventData], _Handler]] = {
    e.RunQueued: RunSpans.on_run_queued,
    e.UserMessage: RunSpans.on_user_message,
    e.ModelResolved: RunSpans.on_model_resolved,
    e.RunWaiting: RunSpans.on_run_waiting,
    e.RunEnd: RunSpans.on_run_end,
    e.LlmRequest: RunSpans.on_llm_request,
    e.LlmResponse: RunSpans.on_llm_response,
    e.LlmError: RunSpans.on_llm_error,
    e.LlmRetry: RunSpans.on_llm_retry,
    e.LlmFallback: RunSpans.on_llm_fallback,
    e.CompactionStarted: RunSpans.on_compaction_started,
    e.ContextCompacted: RunSpans.on_context_compacted,
    e.CompactionFailed: RunSpans.on_compaction_failed,
    e.ToolCallStart: RunSpans.on_tool_call_start,
    e.ClientCallRequested: RunSpans.on_client_call,
    e.AgentSpawn: RunSpans.on_agent_spawn,
    e.ToolCallEnd: RunSpans.on_tool_call_end,
    e.ToolCallError: RunSpans.on_tool_call_error,
    e.ToolCallBlocked: RunSpans.on_call_blocked,
    e.HookBlocked: RunSpans.on_call_blocked,
}
_MOMENTS: Final[dict[type[EventData], str]] = {
    kind: e.NAMES[kind]
    for kind in (
        e.RunStart, e.RunRecovered, e.TrialStarted, e.RunQuarantined, e.MessageSteered, e.RunInterrupted,
        e.ResumeRequested, e.CancelRequested, e.ApprovalRequested, e.ApprovalDecided, e.ApprovalExpired,
        e.ClarifyRequested, e.ClarifyAnswered, e.ClientResult, e.RecoveryAction, e.SegmentOpened,
        e.MemoryDegraded, e.Redacted,
        e.McpConnected, e.McpDisconnected, e.McpFailed,
        e.BreakerOpened, e.BreakerClosed, e.ProcessKilled, e.SandboxDenied, e.QuotaWarning, e.QuotaExceeded,
        e.BudgetExhausted, *(kind for kind in WARNINGS if kind not in _HANDLERS),
    )
}  # fmt: skip
"""Events that become span events of the run under their own name."""


def _call_key(call_id: str) -> str:
    """Return the key of a call that a child run handles, which must be able to derive it."""
    return f"call {call_id}"


def _usage_attributes(usage: Usage, cost: float | None) -> dict[str, Value]:
    used: dict[str, Value] = {
        span_names.INPUT_TOKENS: usage.input_tokens,
        span_names.OUTPUT_TOKENS: usage.output_tokens,
    }
    if usage.cache_read_tokens:
        used[span_names.CACHE_READ_TOKENS] = usage.cache_read_tokens
    if usage.cache_write_tokens:
        used[span_names.CACHE_WRITE_TOKENS] = usage.cache_write_tokens
    if cost is not None:
        used[span_names.COST] = cost
    return used


def _encode_message(message: Message, stop: str | None = None) -> str:
    """Return a message in the format of the conventions."""
    parts = [shown for part in message.parts if (shown := _encode_part(part)) is not None]
    ended = {} if stop is None else {"finish_reason": _FINISHED.get(stop, stop)}
    return msgspec.json.encode([{"role": message.role, "parts": parts, **ended}]).decode()


def _encode_part(part: Part) -> dict[str, str] | None:
    match part:
        case Text(text):
            return {"type": "text", "content": text}
        case Thinking(text=text):
            return {"type": "reasoning", "content": text}
        case ToolUse(call_id, name, arguments):
            return {"type": "tool_call", "id": call_id, "name": name, "arguments": arguments}
        case _:
            return None
