"""What the app shows about the conversation: the status line, the banner, and the bell."""

import asyncio
import math
import time

from rich.text import Text
from textual.timer import Timer

from treadle.domain.envelope import Event
from treadle.domain.errors import TreadleError
from treadle.domain.transcript import MessageItem
from treadle.surfaces.home_access.home_link import LinkState
from treadle.surfaces.terminal.text import one_line
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.chat_run import ChatRun
from treadle.surfaces.tui.chat_state import ChatListener
from treadle.surfaces.tui.controlled_app import BannerKind, ControlledApp
from treadle.surfaces.tui.notification import APP_NAME, make_title
from treadle.surfaces.tui.transcript import ShownItem
from treadle.system.git_state import GitState, read_git_state

TICK_SECONDS = 0.5
STATUS_SECONDS = 0.1
NOTICE_SECONDS = 2.0
"""A long message is shown at least this long, whatever is typed."""
LONG_RUN_SECONDS = 10.0
"""A run of at least this length rings when it ends."""
GIT_SECONDS = 3.0
"""Minimum interval between two looks at the git state."""
MAX_PLACE_CHARACTERS = 40
NEEDS_USER = ("approval", "answer", "interrupted", "unavailable")


class DisplayState(ChatListener):
    """Draws the changes of the conversation."""

    def __init__(self, app: ControlledApp) -> None:
        self._app = app
        self._banner_kind: BannerKind = ""
        self._ticker: Timer | None = None
        self._is_planned = False
        self._is_focused = True
        self._notice_at: float | None = None
        self._title = ""
        """The title of the window, as the terminal was told."""
        self._git: GitState | None = None
        self._git_read_at = -math.inf
        self._git_actions = (-1, "")
        """The calls of the run, and its outcome, when the git state was read."""
        self._known_model: tuple[tuple[str, str | None] | None, str] = (None, "")

    def start(self) -> None:
        self._ticker = self._app.set_interval(TICK_SECONDS, self._tick, pause=True)

    # ── The conversation ──

    def show_change(self, item: ShownItem | None) -> None:
        if not self._app.child_runs.is_open:
            self._app.view.note_change(item)
        if item is not None and isinstance(item.item, MessageItem):
            self._app.history.confirm(item.item.text)

    def show_state(self) -> None:
        """Draw the status line soon. Many changes are drawn once."""
        if not self._is_planned and self._app.is_running:
            self._is_planned = True
            self._app.set_timer(STATUS_SECONDS, self._draw)

    def handle_child_event(self, event: Event) -> None:
        self._app.child_runs.handle_event(event)

    def show_pending(self) -> None:
        self._app.review.show()

    def show_end(self, run: ChatRun) -> None:
        """Ring when a long run has ended, or waits for the user. What was said about stopping it has happened."""
        app = self._app
        app.status.clear_flash()
        is_long = run.totals.elapsed_ms(time.time()) >= LONG_RUN_SECONDS * 1000
        if app.preferences.bell and (is_long or not self._is_focused):
            text = texts.BELL_DONE if run.ended else texts.BELL_WAITS
            app.ring(text.format(agent=one_line(app.chat.agent_name)))
        self.show_state()

    def show_link(self, state: LinkState, detail: str) -> None:
        """Show what happened to the connection to the home."""
        app = self._app
        if not app.is_running:
            return
        match state:
            case "leaving":
                said = texts.MOVING if app.departure.is_moving else texts.TAKEN_OVER
                self.set_banner("link", said.format(keys=app.key_map))
            case "lost":
                self.set_banner("link", texts.CANNOT_OPEN.format(error=detail) if detail else texts.SERVER_GONE)
                app.departure.on_home_released()
            case "owner" | "attached":
                if self._banner_kind == "link":
                    self.set_banner("", "")
                    self.flash(texts.ATTACHED if state == "attached" else texts.OWNS)
        self.show_state()

    def show_error(self, text: str) -> None:
        self.flash(text)

    # ── The status line ──

    def flash(self, text: str) -> None:
        """Show a message: for a few seconds in the status line, or above the input if it is longer than that."""
        app = self._app
        if app.status.has_room_for(text, app.chat):
            app.status.flash(text)
            self._show_notice("")
        else:
            app.status.clear_flash()
            self._show_notice(text)
        self.show_state()
        self._run_ticker()

    def clear_messages(self) -> None:
        """Remove what was said about the previous input: the user goes on."""
        self._app.status.clear_flash()
        self._show_notice("")
        self.show_state()

    def note_key(self) -> None:
        """Remove the long message when a key is pressed that the user could press after reading."""
        if self._notice_at is not None and time.monotonic() - self._notice_at > NOTICE_SECONDS:
            self._show_notice("")

    def _show_notice(self, text: str) -> None:
        if text or self._notice_at is not None:
            self._notice_at = time.monotonic() if text else None
            self._app.notice.display = bool(text)
            self._app.notice.update(Text(one_line(text), self._app.palette.accent))

    def set_focused(self, *, focused: bool) -> None:
        self._is_focused = focused
        if focused:  # another program may have changed files
            self._git_actions = (-1, "")
            self.show_state()
        self._run_ticker()

    def _draw(self) -> None:
        app = self._app
        self._is_planned = False
        news = texts.NEWS_BELOW.format(keys=app.key_map) if app.view.has_news else ""
        app.status.show(app.chat, self._model_name(), self._describe_place(), news)
        self._show_title()
        child = app.child_runs.describe()
        app.child_bar.display = bool(child)
        app.child_bar.update(child)
        app.plan.show(app.chat.plan)
        self._show_model_banner()
        app.input.show_mode()
        if app.extras.queued != app.chat.queued:
            app.extras.queued = app.chat.queued
            app.extras.show()
        self._run_ticker()

    # ── The place and the window ──

    def _describe_place(self) -> str:
        """Return the name of the folder, with the branch and a mark for changed files."""
        self._read_git_soon()
        git = self._git
        branch = "" if git is None else f":{git.branch}{'*' if git.is_dirty else ''}"
        return one_line(f"{self._app.folder.name}{branch}", MAX_PLACE_CHARACTERS)

    def _read_git_soon(self) -> None:
        """Read the git state again after calls and runs, at most every few seconds."""
        run, now = self._app.chat.run, time.monotonic()
        actions = (0, "") if run is None else (run.totals.tool_calls, run.totals.outcome or "")
        if actions != self._git_actions and now - self._git_read_at >= GIT_SECONDS:
            self._git_actions, self._git_read_at = actions, now
            self._app.perform(self._read_git())

    async def _read_git(self) -> None:
        before = self._git
        self._git = await asyncio.to_thread(read_git_state, self._app.folder)
        if self._git != before:
            self.show_state()

    def _show_title(self) -> None:
        app = self._app
        mark = "● " if app.chat.waits_for in NEEDS_USER else "… " if app.chat.is_busy else ""
        title = f"{mark}{app.chat.title or app.folder.name} · {APP_NAME}"
        if title != self._title:
            self._title = title
            app.write_terminal(make_title(title))

    def _run_ticker(self) -> None:
        """Run the timer only while something moves: nothing is drawn when idle or out of focus."""
        chat = self._app.chat
        moves = chat.is_busy and chat.waits_for not in NEEDS_USER
        if self._ticker is not None:
            if (moves and self._is_focused) or self._app.status.is_flashing:
                self._ticker.resume()
            else:
                self._ticker.pause()

    def _tick(self) -> None:
        self._app.status.turn()
        self._draw()

    def _model_name(self) -> str:
        chat = self._app.chat
        run, chosen = chat.run, chat.model
        if run is not None and run.totals.provider and chosen is None:
            return f"{run.totals.provider}/{run.totals.model}"
        key = (chat.agent_name, chosen)
        if self._known_model[0] != key or not self._known_model[1]:  # reading the file of the agent takes a while
            try:
                self._known_model = (key, chat.spec().model)
            except TreadleError:
                self._known_model = (key, chosen or "")
        return self._known_model[1]

    # ── The banner ──

    def _show_model_banner(self) -> None:
        run = self._app.chat.run
        if self._banner_kind == "link":
            return
        if run is not None and run.waits_for == "unavailable":
            self.set_banner("model", texts.UNAVAILABLE.format(detail=run.totals.detail))
        elif self._banner_kind == "model":
            self.set_banner("", "")

    def set_banner(self, kind: BannerKind, text: str) -> None:
        """Show a banner above the message; without text none."""
        self._banner_kind = kind
        self._app.banner.display = bool(text)
        self._app.banner.update(Text(one_line(text), self._app.palette.warning))
