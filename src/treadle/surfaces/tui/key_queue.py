"""Delivers keys and pasted text one at a time."""

import asyncio
import time
from abc import abstractmethod
from collections import deque
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from typing import Any, Protocol, runtime_checkable

from textual import events
from textual.app import App
from textual.message_pump import MessagePump

LONGEST_WAIT_SECONDS = 0.5
"""A widget that is being removed may never say that it is done."""
ECHO_SECONDS = 0.03
"""How long it usually takes until a key is shown."""
CLOSING_KEYS = ("escape", "ctrl+c")
"""Keys with which the user gives up on a screen that is still loading."""


@runtime_checkable
class HoldsKeys(Protocol):
    """A screen that is not ready for every key at once. It calls `KeyQueue.recheck` when it has become ready."""

    @abstractmethod
    def is_ready_for(self, event: events.Key | events.Paste) -> bool: ...


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
        self._is_paused = False
        self._changed = asyncio.Event()
        self._latest_at = -ECHO_SECONDS

    def add(self, event: events.Key | events.Paste) -> None:
        """Deliver an event after those that came before it."""
        self._waiting.append(event)
        self._latest_at = time.monotonic()
        self._changed.set()
        if self._delivery is None or self._delivery.done():
            self._delivery = asyncio.create_task(self._deliver_all())

    @property
    def is_busy(self) -> bool:
        """Whether a key has just been pressed and may not have been shown yet."""
        return time.monotonic() - self._latest_at < ECHO_SECONDS

    def recheck(self) -> None:
        """Deliver the keys that waited for a screen."""
        self._changed.set()

    @contextmanager
    def paused(self) -> Generator[None]:
        """Deliver nothing for a time."""
        self._is_paused = True
        try:
            yield
        finally:
            self._is_paused = False
            self._changed.set()

    async def _deliver_all(self) -> None:
        while self._waiting and self._app.is_running:
            event = self._waiting.popleft()
            await self._wait_until_ready(event)
            target = self._app.focused or self._app.screen
            await self._deliver(event)
            for node in target.ancestors_with_self:
                await _wait_until_handled(node)

    async def _wait_until_ready(self, event: events.Key | events.Paste) -> None:
        """Wait until the screen is ready for a key, or the user gives up on the screen."""
        while self._app.is_running:
            screen = self._app.screen
            is_ready = not isinstance(screen, HoldsKeys) or screen.is_ready_for(event) or self._has_closing_key
            if is_ready and not self._is_paused:
                return
            self._changed.clear()
            await self._changed.wait()

    @property
    def _has_closing_key(self) -> bool:
        return any(isinstance(event, events.Key) and event.key in CLOSING_KEYS for event in self._waiting)


@runtime_checkable
class HasKeyQueue(Protocol):
    """An app whose keys are queued."""

    key_queue: KeyQueue


async def _wait_until_handled(pump: MessagePump) -> None:
    """Wait until a widget has handled the messages that it has received so far."""
    handled = asyncio.Event()
    if pump.call_later(handled.set):
        try:
            async with asyncio.timeout(LONGEST_WAIT_SECONDS):
                await handled.wait()
        except TimeoutError:
            return
