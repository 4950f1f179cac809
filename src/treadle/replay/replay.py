"""`replay` compares the journal of a run with what the current code would write."""

from typing import Any

import msgspec
from msgspec import Struct

from treadle.core.context.projection import project
from treadle.core.fold import fold, fold_all
from treadle.core.state import new_state
from treadle.domain.events import LlmRequest, ModelResolved
from treadle.domain.ids import RunId
from treadle.ports.model import ModelRequest
from treadle.ports.tool import Toolbox
from treadle.replay.comparison import Difference, WordingDifference
from treadle.replay.player import Player, ReplayProgress
from treadle.replay.recording import Recorded, count_replayable

NOTHING_MORE = "nothing"


class Divergence(Struct, frozen=True):
    """The first event whose facts the current code would record differently."""

    sequence: int
    type: str
    recorded: dict[str, Any]
    """Its data."""
    today_type: str
    """The type that the current code writes; `nothing` if it would wait there or end."""
    today: dict[str, Any] | None
    differences: tuple[Difference, ...]
    request_differs: tuple[str, ...] | None = None
    """For a model request: the parts of it that would differ."""


class Replayed(Struct, frozen=True):
    """The result of a replay."""

    run_id: RunId
    events: int
    """Number of recorded events."""
    same: int
    """Number of events before the first one whose facts differ."""
    divergence: Divergence | None = None
    cannot: str = ""
    """Why the rest could not be replayed; empty if it could."""
    wording: tuple[WordingDifference, ...] = ()
    """Events with the same facts and other texts. They are not divergences."""

    @property
    def is_same(self) -> bool:
        return self.divergence is None and not self.cannot


def replay(recorded: Recorded, tools: Toolbox) -> Replayed:
    """Replay a run. It blocks the calling thread, and changes nothing."""
    limit, cannot = count_replayable(recorded.events)
    run_id, total = recorded.origin.run_id, len(recorded.events)
    if not limit:
        return Replayed(run_id, total, 0, cannot=cannot)
    record = msgspec.structs.replace(recorded, events=recorded.events[:limit])
    played = Player(record, tools).play()
    for carried in range(len(recorded.earlier), 0, -1):
        if played.mismatch is None and not played.stopped:
            break
        other = Player(record, tools, carried).play()
        played = other if other.events > played.events else played
    if played.mismatch is None and not played.stopped:
        return Replayed(run_id, total, played.events, cannot=played.cannot or cannot, wording=played.wording)
    return Replayed(run_id, total, played.events, _make_divergence(record, played), wording=played.wording)


def _make_divergence(recorded: Recorded, played: ReplayProgress) -> Divergence:
    event, found = recorded.events[played.events], played.mismatch
    stored: dict[str, Any] = msgspec.json.decode(event.raw)
    if found is None:
        here = Difference("type", event.type, NOTHING_MORE)
        return Divergence(
            sequence=event.sequence,
            type=event.type,
            recorded=stored,
            today_type=NOTHING_MORE,
            today=None,
            differences=(here,),
        )
    differs = None
    if isinstance(event.data, LlmRequest) and isinstance(found.made.data, LlmRequest):
        differs = _find_changed_parts(recorded, played.events, event.data, found.made.data)
    today: dict[str, Any] = msgspec.json.decode(found.made.raw)
    return Divergence(
        sequence=event.sequence,
        type=event.type,
        recorded=stored,
        today_type=found.made.type,
        today=today,
        differences=found.differences,
        request_differs=differs,
    )


def _find_changed_parts(recorded: Recorded, position: int, then: LlmRequest, today: LlmRequest) -> tuple[str, ...]:
    one, other = (_project(recorded, position, request) for request in (then, today))
    return tuple([name for name in one if one[name] != other[name]])


def _project(recorded: Recorded, position: int, request: LlmRequest) -> dict[str, Any]:
    """Return the parts of the request to the model."""
    state = fold_all(new_state(recorded.origin, recorded.history), recorded.events[:position])
    at = recorded.events[position]
    fold(state, request, at.sequence, at.timestamp)
    model = state.model or ModelResolved(request.provider, request.model, "", "")
    sent: ModelRequest = project(state, request.tools_offered, model.profile)
    return {
        "model": f"{request.provider}/{request.model}",
        "system": sent.preamble.system,
        "tools": sent.preamble.tools,
        "messages": list(sent.conversation.messages),
        "settings": sent.settings,
        "tool_choice": (sent.tool_choice, sent.named_tool),
        "constrained": sent.constrained,
    }
