"""The replay operation."""

from treadle.operations.context import Context
from treadle.operations.operation import Operation
from treadle.operations.runs import OneRun
from treadle.replay.replay import Replayed

REPLAY = Operation(
    "runs.replay",
    "GET",
    "/v1/runs/{run_id}/replay",
    scope="read",
    request=OneRun,
    response=Replayed,
    errors=(404,),
)


@REPLAY.handler
async def replay_run(context: Context, request: OneRun) -> Replayed:
    """Replay a run with the current code.

    The journal is replayed with the recorded replies of models and results of tools. The response has the first
    event whose facts would differ, if there is one. Texts that the current code words differently are listed
    separately. Nothing is changed."""
    record = await context.visible_run(request.run_id)
    return await context.service.replay(record.origin.run_id)
