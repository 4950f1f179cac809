"""Delivers keys and pasted text one at a time."""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any

from textual import events
from textual.app import App
from textual.message_pump import MessagePump

LONGEST_WAIT_SECONDS = 0.5
"""A widget that is being removed may never say that it is done."""


class KeyQueue:
    """Holds back each key until everything that the previous one caused has been handled.

    Textual forwards a key to the widget that has the focus, and the key bubbles to the app if the widget does not
    use it. Keys that arrive together would overtake each other: a letter is inserted before the arrow key that was
    pressed first, or reaches a widget that is about to lose the focus.
    """

    def __init__(self, app: App[Any], deliver: Callable[[events.Event], Awaitable[None]]) -> None:
        self._app = app
        self._deliver = deliver
        self._waiting: deque[events.Key | events.Paste] = deque()
        self._delivery: asyncio.Task[None] | None = None

    def add(self, event: events.Key | events.Paste) -> None:
        """Deliver an event after those that came before it."""
        self._waiting.append(event)
        if self._delivery is None or self._delivery.done():
            self._delivery = asyncio.create_task(self._deliver_all())

    async def _deliver_all(self) -> None:
        while self._waiting and self._app.is_running:
            event = self._waiting.popleft()
            target = self._app.focused or self._app.screen
            await self._deliver(event)
            for node in target.ancestors_with_self:
                await _wait_until_handled(node)


async def _wait_until_handled(pump: MessagePump) -> None:
    """Wait until a widget has handled the messages that it has received so far."""
    handled = asyncio.Event()
    if pump.call_later(handled.set):
        try:
            async with asyncio.timeout(LONGEST_WAIT_SECONDS):
                await handled.wait()
        except TimeoutError:
            return
