"""The operation that AG-UI clients call. A hand-written route serves it; the definition describes it."""

from typing import get_args

from msgspec import Struct

from treadle.operations.operation import Operation
from treadle.surfaces.http.ag_ui.events import SentEvent
from treadle.surfaces.http.ag_ui.requests import RunInput


class RunAgent(Struct, frozen=True):
    name: str
    """The agent."""
    input: RunInput


RUN_AGENT = Operation(
    "agents.ag_ui",
    "POST",
    "/v1/agents/{name}/ag-ui",
    scope="run",
    request=RunAgent,
    response=str,
    errors=(402, 404, 409, 422, 429),
    whole_body="input",
    streams="always",
    frames=get_args(SentEvent),
    summary="Run an agent for an AG-UI client",
    description="A run of AG-UI 1.0: the events of the run until it ends, or waits for a person. The thread is a "
    "session. The next request continues it with a message, or with `resume`, an answer to every interrupt. The "
    "run continues when the client disconnects; a request without a new message joins it.",
)
OPERATIONS = (RUN_AGENT,)
