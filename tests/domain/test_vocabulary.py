"""The vocabulary as a whole: names, documentation, and where each type belongs."""

import re

import pytest

from treadle.domain.events import NAMES, VOCABULARY, EventType

SPECIFIED = frozenset(
    [
        "run_queued",
        "run_start",
        "run_waiting",
        "run_end",
        "step_start",
        "step_end",
        "user_message",
        "model_resolved",
        "llm_request",
        "llm_response",
        "llm_error",
        "llm_retry",
        "llm_fallback",
        "attempt_reset",
        "token",
        "thinking",
        "tool_call_delta",
        "tool_call_start",
        "tool_call_progress",
        "tool_call_end",
        "tool_call_error",
        "tool_call_blocked",
        "approval_requested",
        "approval_decided",
        "approval_expired",
        "clarify_requested",
        "clarify_answered",
        "hook_blocked",
        "loop_warning",
        "stuck_detected",
        "recovery_action",
        "phantom_action",
        "empty_turn",
        "continuation",
        "budget_hint",
        "budget_reserved",
        "budget_exhausted",
        "quota_exceeded",
        "result_truncated",
        "context_trimmed",
        "context_compacted",
        "segment_opened",
        "compaction_undone",
        "memory_recalled",
        "memory_saved",
        "memory_flushed",
        "journal_written",
        "agent_spawn",
        "agent_end",
        "message_steered",
        "run_interrupted",
        "cancel_requested",
        "process_killed",
        "run_recovered",
        "run_fenced",
        "run_quarantined",
        "quality_scored",
        "error_analyzed",
        "secret_used",
        "secret_denied",
        "redacted",
        "breaker_opened",
        "breaker_closed",
        "sandbox_denied",
        "heartbeat_fired",
        "webhook_received",
        "webhook_delivered",
        "webhook_failed",
        "channel_received",
        "channel_sent",
        "channel_failed",
        "mcp_connected",
        "mcp_disconnected",
        "mcp_failed",
        "quota_warning",
        "schedule_skipped",
        "memory_degraded",
        "run_forked",
        "stream_reset",
    ]
)
"""The names that are fixed for good, whether or not this version emits them."""
BEYOND = frozenset(
    [
        "client_call_requested",
        "client_result",
        "resume_requested",
        "output_rejected",
        "call_written",
        "calls_dropped",
        "compaction_started",
        "compaction_failed",
        "message_pinned",
        "command_obeyed",
        "agent_told",
        "agent_waiting",
        "agent_answered",
        "mode_changed",
        "trial_started",
    ]
)
"""Types that the specification needs and does not name."""
SELF_EVIDENT = frozenset(
    [
        "user_message",
        "step_start",
        "thinking",
        "tool_call_progress",
        "tool_call_end",
        "stuck_detected",
        "cancel_requested",
    ]
)
"""Types whose fields say all there is to say."""
LIVE = frozenset(
    [
        "run_fenced",
        "attempt_reset",
        "token",
        "thinking",
        "tool_call_delta",
        "tool_call_progress",
        "stream_reset",
        "webhook_delivered",
        "webhook_failed",
        "channel_sent",
        "channel_failed",
    ]
)

every_type = pytest.mark.parametrize("kind", VOCABULARY.values(), ids=VOCABULARY)


@every_type
def test_every_event_type_has_a_specified_name(kind: EventType) -> None:
    assert kind.name in SPECIFIED | BEYOND
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", kind.name)


@every_type
def test_only_types_that_show_work_in_progress_are_live(kind: EventType) -> None:
    assert kind.durable is (kind.name not in LIVE)


@every_type
def test_every_event_type_is_documented_or_self_evident(kind: EventType) -> None:
    assert (kind.data.__doc__ or "").strip() or kind.name in SELF_EVIDENT


@every_type
def test_every_event_type_belongs_to_a_stream(kind: EventType) -> None:
    assert kind.stream in ("run", "agent", "system")


def test_each_data_type_has_one_name() -> None:
    assert {kind.data: name for name, kind in VOCABULARY.items()} == NAMES
