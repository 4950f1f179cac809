"""Changing what the model is shown of the conversation, in every way there is."""

from typing import assert_never

from treadle.core.steps import Compact, Obey, Trim
from treadle.engine.compacting import compact, trim
from treadle.engine.deps import Deps
from treadle.engine.obeying import obey
from treadle.engine.ownership import Log
from treadle.engine.resolving import Missing
from treadle.ports.model import Resolved


async def reshape(step: Trim | Compact | Obey, model: Resolved | Missing, log: Log, deps: Deps) -> None:
    match step:
        case Trim():
            await trim(step, log, deps)
        case Compact():
            assert isinstance(model, Resolved), "without a model there is nobody to write a summary"
            await compact(step, model, log, deps)
        case Obey():
            await obey(step, log, deps)
        case _:
            assert_never(step)
