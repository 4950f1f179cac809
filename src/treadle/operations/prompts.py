"""What the model saw: the request of a step, rebuilt from the journal."""

from msgspec import Struct

from treadle.core.context.projection import project
from treadle.core.fold import fold
from treadle.core.state import RunState
from treadle.domain.envelope import Event
from treadle.domain.errors import UsageError
from treadle.domain.events import LlmRequest, ModelResolved
from treadle.domain.ids import RunId
from treadle.engine.run_history import load_run_history
from treadle.ports.journal import Journal
from treadle.ports.model import ModelRequest


class SentPrompt(Struct, frozen=True):
    """One request, as it was sent."""

    event: LlmRequest
    model: ModelResolved
    request: ModelRequest


async def load_prompt(run_id: RunId, step: int | None, journal: Journal) -> SentPrompt:
    """Return the request of a step, in its last attempt. Raise UsageError if there was none."""
    state, events = await load_run_history(run_id, journal)
    wanted = find_request(run_id, step, events)
    for event in events:
        fold(state, event.data, event.sequence, event.timestamp)
        if event is wanted:
            return _rebuild_prompt(state, event)
    raise AssertionError("an event of a journal is in it")


def find_request(run_id: RunId, step: int | None, events: list[Event]) -> Event:
    """Return the last request of a step, by default of the latest step. Raise UsageError if there was none."""
    asked = [(event, event.data) for event in events if isinstance(event.data, LlmRequest)]
    found = [event for event, data in asked if step is None or data.step == step]
    if found:
        return found[-1]
    if not asked:
        raise UsageError(f"{run_id} has no steps: it called no model. `treadle runs show {run_id}` shows why.")
    raise UsageError(f"{run_id} has no step {step}; its steps are 1 to {asked[-1][1].step}.")


def _rebuild_prompt(state: RunState, event: Event) -> SentPrompt:
    assert isinstance(event.data, LlmRequest)
    assert state.model is not None, "a run that asks has resolved its model"
    request = project(state, event.data.tools_offered, state.model.profile)
    return SentPrompt(event.data, state.model, request)
