"""What is written beside an event, in its transaction, so that lists need not read journals.

Each makes what `project` in `functions/projections.sql` writes, by the name in `as`."""

from collections.abc import Callable, Sequence
from typing import Any

from treadle.domain.envelope import Draft
from treadle.domain.events import (
    ApprovalDecided,
    ApprovalExpired,
    ApprovalRequested,
    RunForked,
    RunStart,
    SegmentOpened,
)
from treadle.stores.postgres.memory_rows import REMEMBERING

Projection = dict[str, Any]


def _requested(made: Draft) -> Sequence[Projection]:
    data = made.data
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
            "at": made.timestamp,
            "expires_at": data.expires_at,
        },
    )


def _decided(made: Draft) -> Sequence[Projection]:
    data = made.data
    assert isinstance(data, ApprovalDecided)
    remember = data.decision == "approve" and data.remember == "session"
    return ({"as": "decided", "approval_id": data.approval_id, "decision": data.decision, "remember": remember},)


def _expired(made: Draft) -> Sequence[Projection]:
    assert isinstance(made.data, ApprovalExpired)
    return ({"as": "decided", "approval_id": made.data.approval_id, "decision": "expired", "remember": False},)


def _segment_opened(made: Draft) -> Sequence[Projection]:
    data = made.data
    assert isinstance(data, SegmentOpened)
    return (
        {
            "as": "segment",
            "segment_id": data.segment_id,
            "parent": data.parent,
            "reason": data.reason,
            "messages": data.messages,
            "at": made.timestamp,
        },
    )


def _started(made: Draft) -> Sequence[Projection]:
    data = made.data
    assert isinstance(data, RunStart)
    return ({"as": "notes", "workspace": data.workspace, "notes": data.notes},) if data.notes else ()


def _forked(made: Draft) -> Sequence[Projection]:
    assert isinstance(made.data, RunForked)
    return ({"as": "forked", "run": made.data.run_id},)


PROJECTIONS: dict[str, Callable[[Draft], Sequence[Projection]]] = {
    "approval_requested": _requested,
    "approval_decided": _decided,
    "approval_expired": _expired,
    **REMEMBERING,
    "run_forked": _forked,
    "run_start": _started,
    "segment_opened": _segment_opened,
}
"""By type of event."""


def beside(drafts: Sequence[Draft]) -> list[Projection]:
    """What is to be written beside these events."""
    return [each for made in drafts if made.type in PROJECTIONS for each in PROJECTIONS[made.type](made)]
