"""Following a run that this user only decided or answered something for. Leaving it does not interrupt it."""

import asyncio
import signal
from contextlib import suppress

from treadle.domain.ids import RunId
from treadle.operations.runs import RunView
from treadle.surfaces.cli.follow import Follower
from treadle.surfaces.home_access.background_process import start_background_process

HAND_OVER_SECONDS = 30.0
"""How long a run may take to come to a safe point before this process ends anyway; the journal survives that."""


async def follow_as_reviewer(follower: Follower, root: RunView, run_id: RunId, since: int) -> int:
    """Follow the root of a run that was just sent something, until it ends or waits, or the user leaves. Ctrl-C, a
    closed terminal and a closed pipe leave the run in progress. Return the exit code."""
    loop, stop = asyncio.get_running_loop(), follower.stop
    loop.add_signal_handler(signal.SIGHUP, stop.leave, signal.SIGHUP)
    following = asyncio.create_task(follower.follow_root(root, run_id, since))
    asked = asyncio.create_task(stop.asked.wait())
    try:
        await asyncio.wait({following, asked}, return_when=asyncio.FIRST_COMPLETED)
        if following.done() and not stop.asked.is_set():
            return following.result()
    finally:
        for task in (following, asked):
            task.cancel()
        await asyncio.wait({following, asked})
        loop.remove_signal_handler(signal.SIGHUP)
    await _leave(follower, root.run_id)
    return stop.exit_code


async def _leave(follower: Follower, run_id: RunId) -> None:
    """Leave a run to the process that executes it, or to one in the background if that is this process."""
    access = follower.access
    with suppress(OSError):  # the terminal is gone
        follower.printer.note(
            f"Left {run_id}, which continues. Follow it: treadle runs events {run_id} --follow. Stop it: treadle "
            f"runs cancel {run_id}"
        )
    if access.engine is None or not access.engine.busy:
        return
    if access.is_shared:
        await access.engine.drain(HAND_OVER_SECONDS)
        start_background_process([run_id])
        return
    start_background_process([run_id])
    with suppress(TimeoutError):
        await asyncio.wait_for(access.released.wait(), HAND_OVER_SECONDS)
