"""Opens the engine of a server or a worker. An unavailable database is retried, at the start and later."""

import asyncio
from contextlib import AsyncExitStack, suppress

from treadle.api.engine import HostedEngine
from treadle.domain.errors import InvalidState, StoreAway, StoreOwned
from treadle.surfaces.terminal.output import note
from treadle.surfaces.terminal.process import Stop

FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.5, 5.0
POLL_INTERVAL_SECONDS = 0.1
"""Poll interval for a home that is being handed over."""
PROBE_INTERVAL_SECONDS = 3.0
"""How often an owner that is to hand the home over is asked whether it answers."""
OWNER_CHANGE_SECONDS = 2.0
"""How long an owner that cannot be asked may be one that is ending."""


async def take_over_home(engine: HostedEngine, stop: Stop, opened: AsyncExitStack) -> bool:
    """Open an engine for a server. A command that owns the home is asked to hand it over.

    Returns False if the server was stopped before that. Raises StoreOwned if the owner is a server too, or cannot
    hand over."""
    loop = asyncio.get_running_loop()
    asked, deadline = False, loop.time() + OWNER_CHANGE_SECONDS
    while True:
        try:
            return await open_engine(engine, stop, opened)
        except StoreOwned as owned:
            if not asked and owned.socket is not None:
                asked = await _ask_for_home(owned)
                deadline = loop.time() + PROBE_INTERVAL_SECONDS
            elif loop.time() > deadline:
                if not asked:
                    raise
                if owned.socket is not None:
                    await _ensure_answer(owned)
                deadline = loop.time() + PROBE_INTERVAL_SECONDS
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.asked.wait(), POLL_INTERVAL_SECONDS)
            return False


async def _ask_for_home(owned: StoreOwned) -> bool:
    """Ask the owner to hand the home over and return whether it will. It may have just ended."""
    from treadle.operations.local_admin import HAND_OVER
    from treadle.operations.operation import NoParameters
    from treadle.remote.caller import RemoteCaller
    from treadle.remote.connection import Connection, OwnerSilent, ServerGone, address_of

    async with Connection(address_of(owned), note) as connection:
        try:
            await RemoteCaller(connection).call(HAND_OVER, NoParameters())
        except InvalidState:
            raise owned from None
        except OwnerSilent:
            raise
        except ServerGone:
            return False
    note(f"Waiting for {owned.owner} to hand the home over: its runs stop at the next safe point.")
    return True


async def _ensure_answer(owned: StoreOwned) -> None:
    """Raise OwnerSilent if the process that is to hand the home over does not answer."""
    from treadle.remote.connection import Connection, address_of

    async with Connection(address_of(owned), note) as connection:
        await connection.is_alive()


async def open_engine(engine: HostedEngine, stop: Stop, opened: AsyncExitStack) -> bool:
    """Open an engine. Returns False if it was stopped before the database was available."""
    pause = FIRST_PAUSE_SECONDS
    while not stop.asked.is_set():
        try:
            await opened.enter_async_context(engine)
        except StoreAway as away:
            if pause == FIRST_PAUSE_SECONDS:
                note(f"{away} Waiting for it; stop with Ctrl-C.")
        else:
            return True
        with suppress(TimeoutError):
            await asyncio.wait_for(stop.asked.wait(), pause)
        pause = min(2 * pause, MAX_PAUSE_SECONDS)
    return False
