"""Finds the runs of a session that a surface has not shown yet."""

from treadle.domain.ids import RunId, SessionId
from treadle.operations import runs
from treadle.operations.operation import Caller
from treadle.operations.runs import RunView


async def find_next_run(caller: Caller, session_id: SessionId, last_shown: RunId | None) -> RunView | None:
    """Return the run of a session that follows the last one that was shown, or None.

    It may have ended already: a short run can begin and end between two looks. A message that was removed from the
    queue is skipped."""
    page = await caller.call(runs.LIST, runs.ListRuns(session_id=session_id))
    latest = [run for run in reversed(page.items) if run.parent_run_id is None]
    ids = [run.run_id for run in latest]
    if last_shown is not None:
        is_known = last_shown in ids
        latest = latest[ids.index(last_shown) + 1 :] if is_known else [run for run in latest if not run.outcome]
    return next((run for run in latest if not (run.outcome == "cancelled" and not run.steps)), None)
