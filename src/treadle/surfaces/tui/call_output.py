"""The whole output of a tool call, read a part at a time."""

from collections.abc import AsyncIterator

from treadle.domain.transcript import CallItem
from treadle.operations.operation import Caller
from treadle.operations.run_inspection import OUTPUT, ReadOutput


async def read_output(caller: Caller, item: CallItem) -> AsyncIterator[str]:
    """Yield the parts of what a call has returned, or of what it has printed so far. The transcript holds a result
    that is not truncated; only others are read."""
    if not item.truncated:
        yield item.result if item.is_final else item.output
        return
    start, length = 0, 1
    while start < length:
        part = await caller.call(OUTPUT, ReadOutput(item.run_id, item.call_id, start))
        yield part.text
        start, length = start + max(1, len(part.text)), part.length
