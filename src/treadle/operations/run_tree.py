"""A run and those under it, however deep."""

from collections.abc import AsyncGenerator

from msgspec import Struct

from treadle.domain.ids import RunId
from treadle.operations.interface import Asking
from treadle.ports.journal import RunFilter, RunRecord

MOST = 500
"""Of the runs under one run: more than it can have at the same time."""


class Member(Struct, frozen=True):
    """A run, and where it stands."""

    record: RunRecord
    depth: int
    """0 for the run that was asked for."""
    is_last: bool = True
    """Nobody stands beneath it at the same place."""


async def root_of(service: Asking, run_id: RunId) -> RunRecord:
    """The run at the top of the tree that a run belongs to, which may be itself."""
    record = await service.run(run_id)
    while (parent := record.origin.parent_run_id) is not None:
        record = await service.run(parent)
    return record


async def family(service: Asking, run_id: RunId, unfinished: bool = False) -> list[Member]:
    """A run and those under it, each before those under itself, in the order in which they were begun."""
    first = Member(await service.run(run_id), 0)
    return [first, *[member async for member in _under(service, first, unfinished)]]


async def _under(service: Asking, above: Member, unfinished: bool) -> AsyncGenerator[Member, None]:
    wanted = RunFilter(parent_run_id=above.record.origin.run_id, unfinished=unfinished)
    found = list(reversed(await service.runs(wanted, MOST)))
    for record in found:
        member = Member(record, above.depth + 1, record is found[-1])
        yield member
        async for other in _under(service, member, unfinished):
            yield other
