"""`replay`: what is on record of a run, held against what the code of today would write."""

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
from treadle.replay.comparison import Difference
from treadle.replay.player import Player, ReplayProgress
from treadle.replay.recording import Recorded, known

NOTHING_MORE = "nothing"


class Divergence(Struct, frozen=True):
    """The first event that would be another one today."""

    sequence: int
    type: str
    recorded: dict[str, Any]
    """Its data."""
    today_type: str
    """`nothing`: today's code would wait there, or end."""
    today: dict[str, Any] | None
    differences: tuple[Difference, ...]
    request_differs: tuple[str, ...] | None = None
    """For a request to a model: the parts of it that would be sent otherwise."""


class Replayed(Struct, frozen=True):
    """What came of a replay."""

    run_id: RunId
    events: int
    """On record."""
    same: int
    """Those up to which nothing differs."""
    divergence: Divergence | None = None
    cannot: str = ""
    """Why the rest could not be replayed; empty: it could."""

    @property
    def is_same(self) -> bool:
        return self.divergence is None and not self.cannot


def replay(recorded: Recorded, tools: Toolbox) -> Replayed:
    """Play a run again. It takes its time and a thread of its own, and touches nothing."""
    limit, cannot = known(recorded.events)
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
        return Replayed(run_id, total, played.events, cannot=played.cannot or cannot)
    return Replayed(run_id, total, played.events, _divergence(record, played))


def _divergence(recorded: Recorded, played: ReplayProgress) -> Divergence:
    event, found = recorded.events[played.events], played.mismatch
    told: dict[str, Any] = msgspec.json.decode(event.raw)
    if found is None:
        here = Difference("type", event.type, NOTHING_MORE)
        return Divergence(event.sequence, event.type, told, NOTHING_MORE, None, (here,))
    differs = None
    if isinstance(event.data, LlmRequest) and isinstance(found.made.data, LlmRequest):
        differs = _parts_that_differ(recorded, played.events, event.data, found.made.data)
    today: dict[str, Any] = msgspec.json.decode(found.made.raw)
    return Divergence(event.sequence, event.type, told, found.made.type, today, found.differences, differs)


def _parts_that_differ(recorded: Recorded, position: int, then: LlmRequest, today: LlmRequest) -> tuple[str, ...]:
    one, other = (_sent(recorded, position, request) for request in (then, today))
    return tuple([name for name in one if one[name] != other[name]])


def _sent(recorded: Recorded, position: int, request: LlmRequest) -> dict[str, Any]:
    """What would go to the model with this request."""
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
        "tool_choice": sent.tool_choice,
        "aside": sent.aside,
    }
