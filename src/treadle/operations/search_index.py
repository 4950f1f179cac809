"""Keeps the index of searches up to date, later than the journal, so that no run waits for it."""

import asyncio
import logging
from collections.abc import Callable

from treadle.domain.errors import StoreError
from treadle.ports.overview import Overview

logger = logging.getLogger(__name__)

PAUSE_SECONDS = 10.0
"""How long new texts wait for the index. Until then, a search reads them one by one."""
BREATH_SECONDS = 0.02
"""Pause between transactions, in which runs commit."""


class SearchIndexer:
    """Adds what is said to the index of searches, while `work` runs."""

    def __init__(self, overview: Overview, count_changes: Callable[[], int]) -> None:
        self._overview = overview
        self._count_changes = count_changes

    async def work(self) -> None:
        """Index until cancelled. An unavailable database is tried again later."""
        seen = -1
        while True:
            if (changes := self._count_changes()) != seen:
                try:
                    await self._catch_up()
                    seen = changes
                except StoreError as error:
                    logger.warning("The index of searches is not up to date: %s", error)
            await asyncio.sleep(PAUSE_SECONDS)

    async def _catch_up(self) -> None:
        has_more = True
        while has_more:
            has_more = await self._overview.index_texts()
            await asyncio.sleep(BREATH_SECONDS)
