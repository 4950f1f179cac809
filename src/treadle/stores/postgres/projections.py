"""Projections of events, written in the same transaction so that lists need not read journals.

Each record is written by `project` in `functions/projections.sql`, which dispatches on `as`."""

from collections.abc import Callable, Sequence
from typing import Any

from treadle.domain.envelope import Draft
from treadle.domain.events import (
    ApprovalDecided,
    ApprovalExpired,
    ApprovalRequested,
    RunEnd,
    RunForked,
    RunQueued,
    RunStart,
    SegmentOpened,
    UserMessage,
)
from treadle.ports.journal import summarize_message
from treadle.stores.postgres.memory_rows import MEMORY_PROJECTIONS
from treadle.stores.run_facts import encode_facts, encode_labels, make_final_facts
from treadle.stores.usage_counts import RunProgress

Projection = dict[str, Any]


def _project_request(draft: Draft) -> Sequence[Projection]:
    data = draft.data
    assert isinstance(data, ApprovalRequested)
    return (
        {
            "as": "requested",
            "approval_id": data.approval_id,
            "call_id": data.call_id,
            "tool": data.name,
            "arguments": data.arguments,
            "reason": data.reason,
            "pattern": data.pattern,
            "at": draft.timestamp,
            "expires_at": data.expires_at,
        },
    )


def _project_decision(draft: Draft) -> Sequence[Projection]:
    data = draft.data
    assert isinstance(data, ApprovalDecided)
    remember = data.decision == "approve" and data.remember == "session"
    return ({"as": "decided", "approval_id": data.approval_id, "decision": data.decision, "remember": remember},)


def _project_expiry(draft: Draft) -> Sequence[Projection]:
    assert isinstance(draft.data, ApprovalExpired)
    return ({"as": "decided", "approval_id": draft.data.approval_id, "decision": "expired", "remember": False},)


def _project_segment(draft: Draft) -> Sequence[Projection]:
    data = draft.data
    assert isinstance(data, SegmentOpened)
    return (
        {
            "as": "segment",
            "segment_id": data.segment_id,
            "parent": data.parent,
            "reason": data.reason,
            "messages": data.messages,
            "at": draft.timestamp,
        },
    )


def _project_queued(draft: Draft) -> Sequence[Projection]:
    data = draft.data
    assert isinstance(data, RunQueued)
    if not data.tags and not data.metadata:
        return ()
    labels = data.labels
    return ({"as": "labels", "labels": encode_labels(labels), "pairs": labels.pairs(), "owner": data.user},)


def _project_start(draft: Draft) -> Sequence[Projection]:
    data = draft.data
    assert isinstance(data, RunStart)
    return ({"as": "notes", "workspace": data.workspace, "notes": data.notes},) if data.notes else ()


def _project_fork(draft: Draft) -> Sequence[Projection]:
    assert isinstance(draft.data, RunForked)
    return {"as": "forked", "run": draft.data.run_id}, _opening(draft.data.asked)


def _project_message(draft: Draft) -> Sequence[Projection]:
    assert isinstance(draft.data, UserMessage)
    return (_opening(draft.data.message.text),)


def _opening(text: str) -> Projection:
    return {"as": "opening", "message": summarize_message(text)}


def _project_end(draft: Draft) -> Sequence[Projection]:
    assert isinstance(draft.data, RunEnd)
    return (project_end(draft.data, ""),)


def project_end(end: RunEnd, model: str) -> Projection:
    """Return the summary of a run that has ended, with the model that was resolved for it."""
    used = end.metrics
    return {
        "as": "ended",
        "cost": used.cost,
        "tokens": used.input_tokens + used.output_tokens,
        "steps": used.steps,
        "duration_ms": used.duration_ms,
        "facts": encode_facts(make_final_facts(end, model)),
    }


def project_progress(progress: RunProgress) -> Projection:
    """Return what is added to the summary of a run in progress."""
    cost, tokens, steps, facts = progress
    return {"as": "progress", "cost": cost, "tokens": tokens, "steps": steps, "facts": encode_facts(facts)}


PROJECTIONS: dict[str, Callable[[Draft], Sequence[Projection]]] = {
    "approval_requested": _project_request,
    "approval_decided": _project_decision,
    "approval_expired": _project_expiry,
    **MEMORY_PROJECTIONS,
    "user_message": _project_message,
    "run_queued": _project_queued,
    "run_end": _project_end,
    "run_forked": _project_fork,
    "run_start": _project_start,
    "segment_opened": _project_segment,
}
"""By event type."""


def project_events(drafts: Sequence[Draft]) -> list[Projection]:
    """Return the projections to write with these events."""
    return [each for draft in drafts if draft.type in PROJECTIONS for each in PROJECTIONS[draft.type](draft)]
