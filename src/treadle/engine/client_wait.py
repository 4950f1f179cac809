"""Runs that wait for results of their clients. For a moment they stay in memory, where a client of this process
delivers directly: the run commits the result with what it does next, as it does with results of its own tools."""

import asyncio
from collections.abc import Callable

from treadle.domain.envelope import Draft
from treadle.domain.events import RunQueued, RunWaiting
from treadle.engine.event_hub import ClientWait
from treadle.engine.owned_run import OwnedRun
from treadle.engine.waits import is_same_wait

LINGER_SECONDS = 2.0
"""How long a run that waits for its client stays in memory."""


def make_result_key(call_id: str) -> str:
    """Return the key that makes the delivery of a result idempotent."""
    return f"result/{call_id}"


class OwnedClientWait:
    """Implements `ClientWait` for a run that this process owns."""

    def __init__(self, run: OwnedRun) -> None:
        self._run = run
        self.is_open = False

    @property
    def queued(self) -> RunQueued | None:
        return self._run.state.tree.queued

    async def receive(self, call_id: str, make: Callable[[], Draft]) -> int | None:
        run = self._run
        await run.wait_until_settled()
        if not (self.is_open and self._waits_for(call_id)):
            return None
        receipt = run.receive(make(), make_result_key(call_id))
        return None if receipt is None else await receipt.wait()

    def _waits_for(self, call_id: str) -> bool:
        state = self._run.state
        asked, call = state.review.client_calls.get(call_id), state.find_call(call_id)
        return asked is not None and asked.result is None and call is not None and call.result is None


async def linger(wait: RunWaiting, run: OwnedRun, stopping: asyncio.Event) -> bool:
    """Keep a run that waits for its client for a moment. Return whether it must decide again, so that nothing need
    be released, claimed and read again for clients that answer at once."""
    state, clock = run.state, run.worker.clock
    if wait.reason != "client_tool" or (state.waiting is not None and is_same_wait(wait, state.waiting)):
        return False
    here = _open_wait(run)
    try:
        if not await run.intend(wait):
            return True
        known, until = state.sequence, clock.now() + LINGER_SECONDS
        if wait.wake_at is not None:
            until = min(until, wait.wake_at)
        await run.run_unless(lambda state: state.sequence != known, _wait_for(stopping), until)
    finally:
        here.is_open = False
    return state.sequence != known or (wait.wake_at is not None and clock.now() >= wait.wake_at)


def _open_wait(run: OwnedRun) -> ClientWait:
    """Let clients of this process deliver to the run, from the commit that asks them on."""
    waits, run_id = run.worker.hub.client_waits, run.origin.run_id
    here = waits.get(run_id)
    if here is None:
        here = waits[run_id] = OwnedClientWait(run)
    here.is_open = True
    return here


async def _wait_for(stopping: asyncio.Event) -> None:
    await stopping.wait()
