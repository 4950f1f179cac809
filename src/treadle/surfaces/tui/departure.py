"""Quitting: a run in progress continues in the background, is parked or is cancelled, as the user chooses."""

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from treadle.domain.ids import RunId, SessionId
from treadle.surfaces.tui import texts
from treadle.system.helper_process import start_command_helper

if TYPE_CHECKING:
    from treadle.surfaces.tui.app import TreadleApp

LeavingKind = Literal["done", "background", "parked", "cancelled", "abandoned"]
STOP_SECONDS = 20.0
"""How long a run may take to stop before the UI quits anyway; the journal survives that."""
POLL_SECONDS = 0.05
BACKGROUND_MODULE = "treadle.surfaces.cli.background"


@dataclass(frozen=True, slots=True)
class Leaving:
    """How the user has left, and what the command prints about it."""

    kind: LeavingKind = "done"
    run_id: RunId | None = None
    session_id: SessionId | None = None


class Departure:
    """Performs what the user chooses when quitting."""

    def __init__(self, app: "TreadleApp") -> None:
        self._app = app
        self.is_moving = False
        """Whether the home is being handed to a process in the background."""

    @property
    def _has_work(self) -> bool:
        """Return whether a run would stop if the UI ended now."""
        chat, engine = self._app.chat, self._app.link.engine
        in_progress = chat.is_busy and chat.waits_for not in ("approval", "answer", "interrupted", "unavailable")
        return in_progress or (engine is not None and engine.busy)

    def ask(self) -> None:
        """Quit; ask first if a run is in progress."""
        if not self._has_work:
            self._app.exit(self._make("done"))
            return
        from treadle.surfaces.tui.choice_screen import ChoiceScreen

        screen = ChoiceScreen(self._app.palette, texts.QUIT_TITLE, texts.QUIT_CHOICES)
        self._app.push_screen(screen, self._follow_choice)

    def _follow_choice(self, choice: str | None) -> None:
        match choice:
            case "background":
                self._app.perform(self._continue_in_background())
            case "park":
                self._app.perform(self._park())
            case "cancel":
                self._app.perform(self._cancel())
            case _:
                pass

    async def _continue_in_background(self) -> None:
        """Leave the run to the process that owns the home, or to a new one that asks this process for the home."""
        if self._app.link.engine is None:
            self._app.exit(self._make("background"))
            return
        self.is_moving = True
        self._app.display_state.set_banner("link", texts.MOVING)
        start_background_process(self._app.chat.facts.run_id if self._app.chat.facts is not None else None)

    def home_released(self) -> None:
        """The home was handed over: nothing is left to do here."""
        if self.is_moving:
            self._app.exit(self._make("background"))

    async def _park(self) -> None:
        self._app.flash(texts.PARKING)
        await self._app.chat.interrupt()
        await self._wait_until_stopped()
        self._app.exit(self._make("parked"))

    async def _cancel(self) -> None:
        self._app.flash(texts.CANCELLING)
        await self._app.chat.cancel()
        await self._wait_until_stopped()
        self._app.exit(self._make("cancelled"))

    async def _wait_until_stopped(self) -> None:
        deadline = asyncio.get_running_loop().time() + STOP_SECONDS
        while self._app.chat.is_busy and self._app.chat.waits_for is None:
            if asyncio.get_running_loop().time() > deadline:
                return
            await asyncio.sleep(POLL_SECONDS)

    def _make(self, kind: LeavingKind) -> Leaving:
        chat = self._app.chat
        return Leaving(kind, chat.facts.run_id if chat.facts is not None else None, chat.session_id)


def start_background_process(run_id: RunId | None) -> None:
    """Start a process that takes the home over, executes its runs, and ends when they have ended."""
    start_command_helper(BACKGROUND_MODULE, *([] if run_id is None else [run_id]))
