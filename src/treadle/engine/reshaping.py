"""Changing what the model is shown of the conversation, in every way there is."""

from typing import assert_never

from treadle.core.steps import Compact, RunSessionCommand, TruncateResults
from treadle.engine.compaction import compact, truncate_results
from treadle.engine.deps import EngineDeps
from treadle.engine.model_resolution import MissingDependency
from treadle.engine.owned_run import OwnedRun
from treadle.engine.session_commands import run_session_command
from treadle.ports.model import Resolved


async def reshape(
    step: TruncateResults | Compact | RunSessionCommand,
    model: Resolved | MissingDependency,
    log: OwnedRun,
    deps: EngineDeps,
) -> None:
    match step:
        case TruncateResults():
            await truncate_results(step, log, deps)
        case Compact():
            assert isinstance(model, Resolved), "without a model there is nobody to write a summary"
            await compact(step, model, log, deps)
        case RunSessionCommand():
            await run_session_command(step, log, deps)
        case _:
            assert_never(step)
