"""`python -m treadle.surfaces.home_access.background [RUN]`: execute the runs of the home without a terminal.

The terminal UI starts it when its user leaves a run in progress. It takes the home over, accepts other commands of
the user, and ends when no run is left and no command is attached. `treadle serve` takes the home over from it."""

import asyncio
import sys
from contextlib import AsyncExitStack

from treadle.api.engine import create_engine
from treadle.bootstrap.stores import ONLY_OWN
from treadle.domain.errors import StoreOwned
from treadle.surfaces.home_access.connection import HAND_OVER_SECONDS, configured_home
from treadle.surfaces.home_access.engine_startup import take_over_home
from treadle.surfaces.http.unix_socket import accept_attachments
from treadle.surfaces.terminal.process import Stop, perform

POLL_INTERVAL_SECONDS = 0.5
IDLE_SECONDS = 2.0
"""How long nothing may be in progress before the process ends: a queued run begins at once."""


async def execute_runs(run_ids: list[str]) -> int:
    """Own the home until its runs have ended or wait, or a server asks for it."""
    home = configured_home()
    engine, asked = create_engine(home=home, share=ONLY_OWN), asyncio.Event()
    engine.models.local.notice = lambda text: None
    with Stop() as stop:
        async with AsyncExitStack() as opened:
            try:
                if not await take_over_home(engine, stop, opened):
                    return 0
            except StoreOwned:
                return 0  # a server owns the home and executes its runs
            attachments = await opened.enter_async_context(accept_attachments(engine, home, hand_over=asked.set))
            for run_id in run_ids:
                engine.adopt(run_id)
            idle = 0.0
            while idle < IDLE_SECONDS and not stop.is_requested and not asked.is_set():
                await asyncio.sleep(POLL_INTERVAL_SECONDS)
                idle = 0.0 if engine.busy or attachments.are_open else idle + POLL_INTERVAL_SECONDS
            if asked.is_set():
                await engine.drain(HAND_OVER_SECONDS)
            else:
                attachments.refuse_more()
    return 0


def main() -> None:
    """Run in the process that `start_command_helper` starts."""
    perform(lambda: execute_runs(sys.argv[1:]))
