"""Opens the home once an editor needs it, and tells its sessions what other surfaces do."""

import asyncio
import logging
from collections.abc import Callable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING

from treadle.domain.errors import StoreError
from treadle.surfaces.acp.open_session import OpenSession

if TYPE_CHECKING:
    from treadle.surfaces.home_access.home_link import HomeLink, LinkState

RECONNECT_SECONDS = 0.3
log = logging.getLogger(__name__)


class HomeOpening:
    """The home of a connection: opened in the background, so that `initialize` is answered at once."""

    def __init__(self, make_link: "Callable[[], HomeLink]", sessions: Mapping[str, OpenSession]) -> None:
        self._make_link = make_link
        self._sessions = sessions
        self._opening: asyncio.Task[HomeLink] | None = None
        self._feeding: asyncio.Task[None] | None = None
        self.link: HomeLink | None = None
        """None until the home is open."""

    async def begin(self) -> None:
        """Begin to open the home."""
        if self._opening is None or (self._opening.done() and self._opening.exception() is not None):
            self._opening = asyncio.create_task(self._open())

    async def wait(self) -> "HomeLink":
        """Return the link to the home. Raise the error of opening it."""
        await self.begin()
        assert self._opening is not None
        return await asyncio.shield(self._opening)

    def stop(self) -> None:
        """Stop watching the home."""
        if self._feeding is not None:
            self._feeding.cancel()

    async def _open(self) -> "HomeLink":
        link = self._make_link()
        link.watch = self._on_link_change
        await link.open()
        self.link = link
        self._feeding = asyncio.create_task(self._feed(link))
        return link

    async def _feed(self, link: "HomeLink") -> None:
        """Watch all runs: other surfaces send messages to open sessions too."""
        while True:
            access = link.access
            if access is not None:
                try:
                    async with aclosing(link.feed()) as feed:
                        async for event in feed:
                            if event.durable and (opened := self._sessions.get(event.session_id)) is not None:
                                opened.session.observe(event)
                except StoreError:
                    pass
                if link.access is access:  # its owner has ended
                    link.report_lost()
            await asyncio.sleep(RECONNECT_SECONDS)

    def _on_link_change(self, state: "LinkState", detail: str) -> None:
        log.info("Home: %s %s", state, detail)
        if state in ("owner", "attached"):
            for each in self._sessions.values():
                each.session.reconnect()
