"""Watches whether the process that owns a home answers while a command waits for it. A stopped process accepts
connections and answers none of them."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import TypeVar

from msgspec import Struct

from treadle.domain.errors import StoreError

Result = TypeVar("Result")

NOTICE_SECONDS = 3.0
"""How long the owner may be silent before the user is told."""
ATTACH_LIMIT_SECONDS = 10.0
"""How long the owner may take to answer for the first time."""
LIMIT_SECONDS = 30.0
"""How long an owner that has answered before may be silent."""
PROBE_SHARE = 0.5
"""The share of NOTICE_SECONDS after which a silent owner is probed; the probe may take the rest."""


class ServerGone(StoreError):
    """The other process does not respond."""


class OwnerSilent(ServerGone):
    """The process that owns the home is there, and does not answer."""


class OwnerName(Struct, frozen=True):
    """The process that owns a home, for messages."""

    pid: int
    description: str
    """Its id and command, such as: process 12 (`treadle serve`, since 10:00:00)."""

    def explain_silence(self, seconds: float) -> str:
        """Return a message that names the owner and says what to do about it."""
        state = " It is stopped (SIGSTOP)." if is_stopped(self.pid) else ""
        return (
            f"The home is owned by {self.description}, which does not answer (for {seconds:.0f} s).{state} "
            f"Continue it with `kill -CONT {self.pid}`, or end it with `kill -9 {self.pid}`: its runs resume when "
            "the next process opens the home."
        )


class OwnerWatch:
    """Waits for a process, tells the user when it is silent, and gives up after a while.

    A request may take long; a process that answers a probe meanwhile is not silent."""

    def __init__(
        self,
        owner: OwnerName,
        probe: Callable[[], Awaitable[None]],
        tell: Callable[[str], None],
        limit_seconds: float = ATTACH_LIMIT_SECONDS,
    ) -> None:
        self._owner = owner
        self._probe = probe
        """Raises OSError if the process is gone."""
        self._tell = tell
        self._is_told = False
        self._limit = limit_seconds

    async def wait(self, work: Callable[[], Awaitable[Result]]) -> Result:
        """Return the result of work that may be cancelled and started again. Raise OwnerSilent if the process stays
        silent."""
        loop = asyncio.get_running_loop()
        heard_at = loop.time()
        while True:
            wait_seconds = NOTICE_SECONDS * PROBE_SHARE
            found = await _within(wait_seconds, work)
            if found is not None:
                return found[0]
            if await _within(NOTICE_SECONDS - wait_seconds, self._probe) is not None:
                self.on_answer()
                heard_at = loop.time()
                continue
            self._on_silence(loop.time() - heard_at)

    def on_answer(self) -> None:
        """Record that the process has answered something."""
        self._limit = LIMIT_SECONDS
        if self._is_told:
            self._is_told = False
            self._tell(f"Process {self._owner.pid} answers again.")

    def _on_silence(self, seconds: float) -> None:
        if seconds >= self._limit:
            raise OwnerSilent(self._owner.explain_silence(seconds))
        if not self._is_told:
            self._is_told = True
            self._tell(f"{self._owner.explain_silence(seconds)} Waiting for it.")


async def _within(seconds: float, work: Callable[[], Awaitable[Result]]) -> tuple[Result] | None:
    """Return the result of the work, or None if it takes longer."""
    limit = asyncio.timeout(seconds)
    try:
        async with limit:
            return (await work(),)
    except TimeoutError:
        if not limit.expired():
            raise
        return None


def is_stopped(pid: int) -> bool:
    """Return whether a process of this machine was stopped by a signal or a debugger."""
    try:
        content = Path(f"/proc/{pid}/stat").read_text(errors="replace")
    except OSError:
        return False
    return content.rpartition(")")[2].split()[:1] in (["T"], ["t"])
