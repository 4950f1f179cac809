"""Opening what is to run for long: a database that is away is waited for, as it would be if it went away later."""

import asyncio
from contextlib import AsyncExitStack, suppress

from treadle.app import Engine
from treadle.domain.errors import StoreAway
from treadle.surfaces.cli.printing import note
from treadle.surfaces.cli.process import Stop

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 5.0


async def open_engine(engine: Engine, stop: Stop, opened: AsyncExitStack) -> bool:
    """Open it. False: it was told to stop before the database was there."""
    pause = FIRST_PAUSE
    while not stop.asked.is_set():
        try:
            await opened.enter_async_context(engine)
        except StoreAway as away:
            if pause == FIRST_PAUSE:
                note(f"{away} It is waited for; stop with Ctrl-C.")
        else:
            return True
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.asked.wait(), pause)
        pause = min(2 * pause, LONGEST_PAUSE)
    return False
