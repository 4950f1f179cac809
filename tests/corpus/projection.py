"""Projections of the corpus: the state of every run, and every request that was sent for it."""

from collections.abc import AsyncIterator
from typing import Any, get_args

import msgspec

from treadle.bootstrap.engine import encode_request
from treadle.core.context.projection import project as project_request
from treadle.core.fold import fold
from treadle.core.state import RunState
from treadle.domain.events import LlmRequest
from treadle.domain.providers import ApiMode
from treadle.engine.run_history import load_run_history
from treadle.operations.service import LocalService

MODES = get_args(ApiMode)


async def project(service: LocalService) -> bytes:
    """Return a line for each run and for each request, in the order in which the runs were asked for."""
    journal: Any = getattr(service, "_journal")  # noqa: B009 -- what lies under the operations is compared
    lines: list[bytes] = []
    for record in reversed(await service.runs(limit=1000)):
        found = _lines(record.origin.run_id, journal)
        lines += [msgspec.json.encode(line, order="sorted") async for line in found]
    return b"\n".join(lines) + b"\n"


async def _lines(run_id: Any, journal: Any) -> AsyncIterator[dict[str, Any]]:
    state, events = await load_run_history(run_id, journal)
    for event in events:
        fold(state, event.data, event.sequence, event.timestamp)
        if isinstance(event.data, LlmRequest):
            assert state.model is not None
            request = project_request(state, event.data.tools_offered, state.model.profile)
            bodies = {mode: encode_request(mode, request).decode() for mode in MODES}
            yield {"run": run_id, "sequence": event.sequence, "requests": bodies}
    yield {"run": run_id, "state": summarize(state)}


def summarize(state: RunState) -> dict[str, Any]:
    """Return what a run has come to, in words that do not depend on how the state is laid out."""
    return {
        "sequence": state.sequence,
        "status": state.status,
        "outcome": state.outcome,
        "agent": state.agent.name,
        "started": state.has_started,
        "cancelled": state.cancelled is not None,
        "interrupted": state.interrupted is not None,
        "waiting": None if state.waiting is None else [state.waiting.reason, state.waiting.wake_at],
        "open_calls": [[call.call_id, call.phase] for call in state.open_calls],
        "inbox": [message.text for message in state.turn.inbox],
        "said": msgspec.to_builtins(state.own_messages),
        "metrics": msgspec.to_builtins(state.metrics(2_000_000_000.0)),
    }
