"""Changing what the model is shown of the conversation, in every way there is."""

from typing import assert_never

from treadle.core.steps import Compact, RunSessionCommand, TruncateResults
from treadle.engine.compaction import compact, trim
from treadle.engine.deps import EngineDeps
from treadle.engine.model_resolution import Missing
from treadle.engine.owned_run import OwnedRun
from treadle.engine.session_commands import obey
from treadle.ports.model import Resolved


async def reshape(
    step: TruncateResults | Compact | RunSessionCommand, model: Resolved | Missing, log: OwnedRun, deps: EngineDeps
) -> None:
    match step:
        case TruncateResults():
            await trim(step, log, deps)
        case Compact():
            assert isinstance(model, Resolved), "without a model there is nobody to write a summary"
            await compact(step, model, log, deps)
        case RunSessionCommand():
            await obey(step, log, deps)
        case _:
            assert_never(step)
