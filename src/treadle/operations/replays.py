"""The replay operation."""

from typing import Annotated

from msgspec import Meta, Struct

from treadle.domain.ids import RunId
from treadle.operations.context import Context
from treadle.operations.operation import Operation
from treadle.replay.replay import Replayed


class ReplayRun(Struct, frozen=True, forbid_unknown_fields=True):
    run_id: RunId
    agent: (
        Annotated[
            str,
            Meta(max_length=200, description="Replay with the settings of this agent, `NAME` or `NAME@VERSION`."),
        ]
        | None
    ) = None


REPLAY = Operation(
    "runs.replay",
    "GET",
    "/v1/runs/{run_id}/replay",
    scope="read",
    request=ReplayRun,
    response=Replayed,
    errors=(404,),
)


@REPLAY.handler
async def replay_run(context: Context, request: ReplayRun) -> Replayed:
    """Replay a run with the current code.

    The journal is replayed with the recorded replies of models and results of tools. The response has the first
    event whose facts would differ, if there is one. Texts that the current code words differently are listed
    separately. With `agent`, the settings of the run are those of that agent. Nothing is changed."""
    record = await context.visible_run(request.run_id)
    agent = None if request.agent is None else (await context.choose_agent(request.agent)).spec
    return await context.service.replay(record.origin.run_id, agent)
