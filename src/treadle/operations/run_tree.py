"""A run and its children, however deep."""

from collections.abc import AsyncGenerator

from msgspec import Struct

from treadle.domain.ids import RunId
from treadle.operations import runs
from treadle.operations.operation import Caller, list_items
from treadle.operations.runs import RunView


class Member(Struct, frozen=True):
    """A run of the tree."""

    run: RunView
    depth: int
    """0 for the run at the top."""
    is_last: bool = True
    """Whether it is the last child of its parent."""


async def find_root(caller: Caller, run_id: RunId) -> RunView:
    """Return the run at the top of the tree of a run, which can be the run itself."""
    run = await caller.call(runs.SHOW, runs.ShowRun(run_id))
    while run.parent_run_id is not None:
        run = await caller.call(runs.SHOW, runs.ShowRun(run.parent_run_id))
    return run


async def list_members(caller: Caller, run_id: RunId, unfinished: bool = False) -> list[Member]:
    """Return a run and all runs below it, each before its children, in the order in which they were started."""
    first = Member(await caller.call(runs.SHOW, runs.ShowRun(run_id)), 0)
    return [first, *[member async for member in _list_descendants(caller, first, unfinished)]]


async def _list_descendants(caller: Caller, above: Member, unfinished: bool) -> AsyncGenerator[Member, None]:
    wanted = runs.ListChildren(above.run.run_id, unfinished)
    found = list(reversed(await list_items(caller, runs.CHILDREN, wanted)))
    for run in found:
        member = Member(run, above.depth + 1, run is found[-1])
        yield member
        async for other in _list_descendants(caller, member, unfinished):
            yield other
