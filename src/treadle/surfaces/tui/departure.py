"""Quitting: a run in progress continues in the background, is parked or is cancelled, as the user chooses."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from treadle.surfaces.home_access.background_process import start_background_process
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.chat import Chat
from treadle.surfaces.tui.leaving import Leaving, LeavingKind

if TYPE_CHECKING:
    from treadle.surfaces.tui.controlled_app import ControlledApp  # imports Textual, which a plain chat does not

UNATTENDED = ("interrupted", "unavailable")
"""What a run waits for that goes on only when the user says so: leaving changes nothing."""
STOP_SECONDS = 20.0
"""How long a run may take to stop before the UI quits anyway; the journal survives that."""
POLL_SECONDS = 0.05


class Departure:
    """Performs what the user chooses when quitting."""

    def __init__(self, app: "ControlledApp") -> None:
        self._app = app
        self.is_moving = False
        """Whether the home is being handed to a process in the background."""

    def ask(self) -> None:
        """Quit; ask first if a run is in progress."""
        question = find_question(self._app.chat)
        if question is None:
            self._app.exit(self._make("done"))
            return
        from treadle.surfaces.tui.choice_screen import ChoiceScreen

        self._app.push_screen(ChoiceScreen(self._app.palette, *question), self._follow_choice)

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
        if waits_for_user(self._app.chat):
            self._app.exit(self._make("waiting"))
            return
        if self._app.link.engine is None:
            self._app.exit(self._make("background"))
            return
        self.is_moving = True
        self._app.display_state.set_banner("link", texts.MOVING.format(keys=self._app.key_map))
        run = self._app.chat.run
        start_background_process([] if run is None else [run.run_id])

    def on_home_released(self) -> None:
        """The home was handed over: nothing is left to do here."""
        if self.is_moving:
            self._app.exit(self._make("background"))

    async def _park(self) -> None:
        self._app.flash(texts.PARKING)
        await self._app.chat.interrupt()
        await wait_until_stopped(self._app.chat)
        self._app.exit(self._make("parked"))

    async def _cancel(self) -> None:
        self._app.flash(texts.CANCELLING)
        await self._app.chat.cancel()
        await wait_until_stopped(self._app.chat)
        self._app.exit(self._make("cancelled"))

    def _make(self, kind: LeavingKind) -> Leaving:
        chat = self._app.chat
        return Leaving(kind, chat.run.run_id if chat.run is not None else None, chat.session_id)


def waits_for_user(chat: Chat) -> bool:
    """Return whether the run waits for an approval or an answer, so that no process needs to execute it."""
    return chat.waits_for in ("approval", "answer")


def find_question(chat: Chat) -> tuple[str, Sequence[tuple[str, str, str]]] | None:
    """Return what to ask before leaving, and the choices; None if no run is in progress or waits for the user."""
    if waits_for_user(chat):
        (key, name, _), *rest = texts.QUIT_CHOICES
        return texts.QUIT_WAITING_TITLE, ((key, name, texts.LEAVE_WAITING), *rest)
    engine = chat.link.engine
    in_progress = chat.is_busy and chat.waits_for not in UNATTENDED
    return (texts.QUIT_TITLE, texts.QUIT_CHOICES) if in_progress or (engine is not None and engine.busy) else None


async def wait_until_stopped(chat: Chat) -> None:
    """Wait until the run has ended or is interrupted."""
    deadline = asyncio.get_running_loop().time() + STOP_SECONDS
    while chat.is_busy and chat.waits_for not in UNATTENDED:
        if asyncio.get_running_loop().time() > deadline:
            return
        await asyncio.sleep(POLL_SECONDS)
