"""Events survive encoding and decoding, including data that a later version wrote."""

from typing import Any, cast

import msgspec
import pytest

from treadle.domain import events as e
from treadle.domain.agents import AgentSpec, Limits
from treadle.domain.envelope import VERSION, Event, Origin, decode_data, from_json, make_draft, to_json
from treadle.domain.events import VOCABULARY, EventData, UnknownEvent
from treadle.domain.ids import AgentId, ApprovalId, EventId, RunId, SegmentId, SessionId
from treadle.domain.messages import Image, Message, Text, Thinking, ToolUse, user
from treadle.domain.runs import Metrics, Outcome, Usage
from treadle.domain.tools import ToolSpec

ORIGIN = Origin(RunId("run_1"), SessionId("ses_1"), AgentId("agt_1"), RunId("run_0"))

EXAMPLES: tuple[EventData, ...] = (
    e.RunQueued(AgentSpec("hero", "p/m", limits=Limits(max_steps=None)), RunId("run_0")),
    e.UserMessage(user("hello", Image("image/png", "aGk="))),
    e.RunStart((ToolSpec("read", "Reads.", {"type": "object"}, effect="read"),)),
    e.ModelResolved("p", "m", "custom", "why"),
    e.RunWaiting("retry", "attempt 2", 12.5),
    e.RunRecovered(2, "died"),
    e.TrialStarted("trl_1", 8),
    e.ModeChanged("plan", "ann"),
    e.RunQuarantined(4),
    e.RunFenced(3),
    e.RunEnd(
        status="failed",
        outcome="stuck",
        metrics=Metrics(steps=3),
        text="text",
        reason="reason",
        next="next",
        stopped=("read (call_1)",),
    ),
    e.StepStart(1),
    e.StepEnd(step=1, attempts=1, calls=0, input_tokens=10, output_tokens=5, duration_ms=7),
    e.LlmRequest(1, 2, "p", "m", 3, tools_offered=False, repeats_lost=True),
    e.LlmResponse(
        step=1,
        attempt=1,
        parts=(Thinking("hm", "p", "m", "signed"), Text("é"), ToolUse("c", "read", "{}")),
        stop="tool_use",
        usage=Usage(1, 2),
        duration_ms=3,
    ),
    e.LlmError(step=1, attempt=1, kind="overloaded", message="busy", retryable=True, status=529),
    e.LlmRetry(1, 1, 12.5, 500),
    e.LlmFallback(1, "p", "m", "q/n", "reason"),
    e.BreakerOpened("p", "m"),
    e.McpConnected("git", "git 1.0", "2025-11-25", 12),
    e.McpDisconnected("git", "it ended"),
    e.McpFailed("git", "it did not answer"),
    e.BreakerClosed("p", "m"),
    e.AttemptReset(5, 2),
    e.Token(5, 1, 0, "hel"),
    e.ThinkingDelta(5, 1, 0, "hm"),
    e.ToolCallDelta(request=5, attempt=1, index=0, offset=0, name="read", arguments='{"pa'),
    e.ToolCallStart("c", "read", "{}", "run_1/c"),
    e.ToolCallProgress(9, "c", 0, "half"),
    e.ToolCallEnd("c", "read", "content", 3),
    e.ToolCallError("c", "read", "timeout", "content"),
    e.ToolCallBlocked("c", "read", "loop", "content"),
    e.ResultTruncated("c", 100_000, 2000),
    e.HookBlocked("c", "read", "Careful", "content"),
    e.ProcessKilled("c", "sleep 99", "timeout", 3),
    e.SandboxDenied("c", "reason"),
    e.ApprovalRequested(
        approval_id=ApprovalId("apr_1"),
        call_id="c",
        name="bash",
        arguments="{}",
        reason="reason",
        pattern="rm *",
        expires_at=12.5,
    ),
    e.ApprovalDecided(
        approval_id=ApprovalId("apr_1"),
        decision="approve",
        arguments="{}",
        note="note",
        by="someone",
        remember="session",
    ),
    e.ApprovalExpired(ApprovalId("apr_1"), "c"),
    e.ClarifyRequested("c", "which one?", ("this", "that")),
    e.ClarifyAnswered("c", "this", "someone"),
    e.ClientCallRequested("c", "weather", "{}", 12.5),
    e.ClientResult("c", "sunny", is_error=True),
    e.SecretUsed("TOKEN", "bash", "c"),
    e.SecretDenied("TOKEN", "bash", "c", "reason"),
    e.Redacted(("TOKEN",), "tool_result", "c"),
    e.PhantomAction(1, "claim", "note"),
    e.LoopWarning("read", "read {}", 3, "note"),
    e.StuckDetected("failing_tool", 3, "read"),
    e.RecoveryAction("note", "note", "read"),
    e.EmptyTurn(1, "note"),
    e.Continuation(1, "note"),
    e.CallWritten(1, "received", "note"),
    e.CallsDropped(1, 3, 128, "note"),
    e.OutputRejected(1, "error", "note"),
    e.BudgetHint(70, "note"),
    e.MessageSteered(Message("user", (Text("hi"),)), "interrupt"),
    e.RunInterrupted("reason"),
    e.ResumeRequested(),
    e.CancelRequested("reason"),
    e.StreamReset(7, "reason"),
    e.BudgetReserved(step=1, attempt=2, accounts=("agent/hero", "tree/run_1"), tokens=9000, cost=0.01, credits=1.0),
    e.BudgetExhausted("tree/run_1", 1.0, 0.995, 0.01),
    e.QuotaWarning("agent/hero", "tokens", 1000, 800, 12.5),
    e.QuotaExceeded("token/tok_1", "credits", 10.0, 9.5, 1.0),
    e.RunForked(
        run_id=RunId("run_0"),
        step=3,
        asked="asked",
        tasks=(0,),
        calls=((e.ReusedCall("c", "read", "read {}", "failed", "00ff", polls=True),),),
        counters=e.Counters("so far", 1, stage="note"),
        measured=e.Measured("p", "m", counted=10),
        route="p/m",
        recalled="memories",
    ),
    e.HeartbeatFired("sch_1", 12.5, 2.5),
    e.ScheduleSkipped("sch_1", 12.5),
    e.WebhookReceived("hok_1", "msg_1", 200),
    e.WebhookDelivered("whk_1", "evt_1", 1),
    e.WebhookFailed("whk_1", "evt_1", 2, "reason", 12.5),
    e.ChannelReceived("telegram", "11/7", "11", "11", 2),
    e.ChannelSent("telegram", "11", "run_1/0/0", "8", 1),
    e.ChannelFailed(
        channel="telegram", conversation="11", key="run_1/0/0", attempt=2, reason="reason", retry_at=12.5
    ),
    e.AgentSpawn(
        call_id="c",
        run_id=RunId("run_2"),
        session_id=SessionId("ses_2"),
        agent="helper",
        role="spawn",
        arguments="{}",
        expires_at=12.5,
        withheld=("bash",),
        end=Outcome("completed"),
    ),
    e.AgentEnd(
        call_id="c",
        run_id=RunId("run_2"),
        agent="helper",
        status="failed",
        outcome="max_steps",
        text="text",
        reason="reason",
        metrics=Metrics(steps=3),
        steps=5,
        stopped=("bash (c)",),
    ),
    e.AgentWaiting(RunId("run_2"), "helper", "approval", "apr_1: bash", "c"),
    e.AgentAnswered(RunId("run_2"), "helper", "c"),
    e.AgentTold(("c",), "cancel", "reason"),
    e.QualityScored("quality-checker", RunId("run_2"), 0.4, "reasons", "note"),
    e.ErrorAnalyzed("error-analyzer", RunId("run_2"), "diagnosis"),
    e.ContextTrimmed(stage="shrink", freed=400, dropped=(0, 3), kept=(1,), results=("c",), longest=1000),
    e.CompactionStarted(
        stage="compact",
        trigger="threshold",
        first=1,
        last=9,
        provider="provider",
        model="model",
        input_estimate=5000,
        cost_estimate=0.01,
        repeats_lost=True,
    ),
    e.CompactionFailed(
        stage="harder", trigger="overflow", reason="reason", usage=Usage(10, 1), duration_ms=5, cost=0.01, calls=2
    ),
    e.ContextCompacted(
        stage="compact",
        trigger="command",
        first=1,
        last=9,
        kept=(3,),
        summary="summary",
        tokens_before=5000,
        tokens_after=900,
        model="provider/model",
        usage=Usage(10, 1),
        duration_ms=5,
        cost=0.01,
        calls=2,
    ),
    e.SegmentOpened(SegmentId("seg_2"), SegmentId("seg_1"), "compaction", 4),
    e.CompactionUndone(SegmentId("seg_2"), 1, 2, (Message("user", (Text("hi"),), "pinned"),)),
    e.MessagePinned(Message("user", (Text("hi"),)), 3),
    e.CommandObeyed("said", done=False),
    e.MemoryRecalled((e.Reminder("mem_1", 0.5),), "section", "both", "system"),
    e.MemorySaved("mem_1", "text", "run", pinned=True, repeats="mem_0"),
    e.MemoryFlushed(("mem_1",)),
    e.JournalWritten("mem_1", "text"),
    e.MemoryDegraded("local", "reason"),
)


def find_type_name(data: EventData) -> str:
    return e.NAMES[type(data)]


def event(data: EventData) -> Event:
    made = make_draft(EventId("evt_1"), 1_800_000_000.25, data)
    return Event(
        event_id=made.event_id,
        timestamp=made.timestamp,
        origin=ORIGIN,
        sequence=7,
        type=made.type,
        data=made.data,
        raw=made.raw,
    )


def with_unknown(value: Any) -> Any:
    """Return the same JSON with an unknown field in every object."""
    if isinstance(value, dict):
        known = cast("dict[str, Any]", value)
        return {**{key: with_unknown(item) for key, item in known.items()}, "from_a_later_version": {"x": [1]}}
    if isinstance(value, list):
        return [with_unknown(item) for item in cast("list[Any]", value)]
    return value


def test_there_is_an_example_of_every_type() -> None:

    assert {find_type_name(data) for data in EXAMPLES} == set(VOCABULARY)


@pytest.mark.parametrize("data", EXAMPLES, ids=find_type_name)
def test_an_event_goes_over_the_wire_and_back(data: EventData) -> None:
    sent = event(data)
    assert from_json(to_json(sent)) == sent


@pytest.mark.parametrize("name", ['a"b', "line\nbreak", "\\", "ä€😀"])
@pytest.mark.parametrize("timestamp", [1_800_000_000.0, 1_800_000_000.000001, 0.5])
def test_names_with_special_characters_go_over_the_wire_and_back(name: str, timestamp: float) -> None:
    origin = Origin(RunId(name), SessionId(name), AgentId(name), RunId(name))
    sent = Event(
        event_id=EventId(name),
        timestamp=timestamp,
        origin=origin,
        sequence=7,
        type="token",
        data=e.Token(1, 1, 0, name),
        raw=b"",
    )
    sent = msgspec.structs.replace(sent, raw=msgspec.json.encode(sent.data))
    assert from_json(to_json(sent)) == sent


def test_the_envelope_has_the_fields_of_the_specification_in_order() -> None:
    assert list(msgspec.json.decode(to_json(event(e.StepStart(1))))) == [
        "event_id", "timestamp", "agent_id", "run_id", "parent_run_id", "session_id", "sequence", "type", "data",
        "version",
    ]  # fmt: skip


def wire(type_: str, data: Any, version: int = VERSION) -> bytes:
    fields = {
        "event_id": "evt_1", "timestamp": "2027-01-15T08:00:00Z", "agent_id": "agt_1", "run_id": "run_1",
        "parent_run_id": None, "session_id": "ses_1", "sequence": 7, "type": type_, "data": data,
        "version": version,
    }  # fmt: skip
    return msgspec.json.encode(fields)


def test_a_type_of_a_later_version_is_kept_as_it_is() -> None:
    line = wire("approval_requested", {"approval_id": "apr_1", "deep": {"list": [1, 2]}}, version=9)
    read = from_json(line)
    assert isinstance(read.data, UnknownEvent)
    assert read.durable
    assert msgspec.json.decode(to_json(read)) == msgspec.json.decode(line)


@pytest.mark.parametrize("data", EXAMPLES, ids=find_type_name)
def test_fields_of_a_later_version_are_kept(data: EventData) -> None:
    line = wire(find_type_name(data), {**msgspec.to_builtins(data), "from_a_later_version": 1})
    assert from_json(line).data == data
    assert msgspec.json.decode(to_json(from_json(line))) == msgspec.json.decode(line)


@pytest.mark.parametrize("data", EXAMPLES, ids=find_type_name)
def test_fields_of_a_later_version_deep_inside_do_not_make_an_event_unreadable(data: EventData) -> None:
    plain = with_unknown(msgspec.to_builtins(data))
    if isinstance(data, e.RunStart):
        plain["tools"][0]["schema"] = {"type": "object"}  # a JSON Schema is free text to us
    line = wire(find_type_name(data), plain)
    assert from_json(line).data == data
    assert msgspec.json.decode(to_json(from_json(line))) == msgspec.json.decode(line)


def test_content_of_a_later_version_that_cannot_be_read_is_unknown() -> None:
    assert decode_data("step_start", b'{"step": "seven"}', VERSION + 1) == UnknownEvent()


def test_content_of_this_version_that_cannot_be_read_is_an_error() -> None:
    with pytest.raises(msgspec.ValidationError):
        decode_data("step_start", b'{"step": "seven"}', VERSION)
