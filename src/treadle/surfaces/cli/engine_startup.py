"""Opening what is to run for long: a database that is away is waited for, as it would be if it went away later."""

import asyncio
from contextlib import AsyncExitStack, suppress

from treadle.api.engine import Engine
from treadle.domain.errors import InvalidState, StoreAway, StoreOwned
from treadle.surfaces.cli.event_output import note
from treadle.surfaces.cli.process import Stop

FIRST_PAUSE, LONGEST_PAUSE = 0.5, 5.0
LOOK_SECONDS = 0.1
"""Poll interval for a home that is being handed over."""
PATIENCE_SECONDS = 2.0
"""How long an owner that cannot be asked may be one that is about to end."""


async def take_over_home(engine: Engine, stop: Stop, opened: AsyncExitStack) -> bool:
    """Open an engine for a server. A command that owns the home is asked to hand it over, and waited for.

    False: the server was told to stop before. Raises StoreOwned where the owner cannot hand over, or is a server
    too."""
    asked, patience = False, asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while True:
        try:
            return await open_engine(engine, stop, opened)
        except StoreOwned as owned:
            if not asked and owned.socket is not None:
                asked = await _ask_for_home(owned, owned.socket)
            elif not asked and asyncio.get_running_loop().time() > patience:
                raise
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.asked.wait(), LOOK_SECONDS)
            return False


async def _ask_for_home(owned: StoreOwned, socket: str) -> bool:
    """Ask the owner to hand the home over; return whether it will. One that has just gone is not an error."""
    from treadle.operations.local_admin import HAND_OVER
    from treadle.operations.operation import NoParameters
    from treadle.remote.caller import RemoteCaller
    from treadle.remote.connection import Address, Connection, ServerGone

    async with Connection(Address(socket)) as connection:
        try:
            await RemoteCaller(connection).call(HAND_OVER, NoParameters())
        except InvalidState:
            raise owned from None
        except ServerGone:
            return False
    note(f"waiting for {owned.owner} to hand the home over: its runs stop at the next safe point")
    return True


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
