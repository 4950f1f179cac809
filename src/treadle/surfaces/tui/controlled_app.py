"""Protocols of what the controllers of the UI use: of the app, and of each other through the app."""

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Literal, Protocol, TypeVar

from textual.screen import Screen
from textual.timer import Timer
from textual.widget import Widget
from textual.widgets import Static

from treadle.domain.envelope import Event
from treadle.domain.messages import Image
from treadle.surfaces.home_access.home_link import HomeLink
from treadle.surfaces.markdown.palette import Palette
from treadle.surfaces.tui.approval_panel import ApprovalPanel
from treadle.surfaces.tui.chat import Chat
from treadle.surfaces.tui.chat_state import ForkSource
from treadle.surfaces.tui.commands import Slash
from treadle.surfaces.tui.keys import KeyMap
from treadle.surfaces.tui.leaving import Leaving
from treadle.surfaces.tui.message_history import MessageHistory
from treadle.surfaces.tui.own_themes import Themes
from treadle.surfaces.tui.plan_panel import PlanPanel
from treadle.surfaces.tui.preferences import Preferences
from treadle.surfaces.tui.prompt_view import MessageEditor, Mode, PromptExtras
from treadle.surfaces.tui.status_line import StatusLine
from treadle.surfaces.tui.suggestions import Suggestion
from treadle.surfaces.tui.transcript import SessionTranscript
from treadle.surfaces.tui.transcript_view import TranscriptView

BannerKind = Literal["", "link", "model"]
Result = TypeVar("Result")


# ── The controllers ──


class DisplayControl(Protocol):
    """What `DisplayState` does for the others."""

    def clear_messages(self) -> None: ...

    def show_state(self) -> None: ...

    def set_banner(self, kind: BannerKind, text: str) -> None: ...


class PromptControl(Protocol):
    """What `PromptController` does for the others."""

    fork_source: ForkSource | None

    def enter(self, mode: Mode, text: str = "") -> None: ...

    def leave(self) -> None: ...

    def show_mode(self) -> None: ...

    def show_suggestions(self) -> None: ...


class ReviewControl(Protocol):
    """What `Review` does for the others."""

    @property
    def asks_question(self) -> bool: ...

    def show(self) -> None: ...

    def go_back(self) -> None: ...

    async def submit(self, mode: Mode, text: str) -> None: ...


class ChildControl(Protocol):
    """What `ChildRuns` does for the others."""

    @property
    def transcript(self) -> SessionTranscript: ...

    @property
    def is_open(self) -> bool: ...

    def describe(self) -> str: ...

    def handle_event(self, event: Event) -> None: ...

    def go_back(self) -> None: ...

    def close(self) -> None: ...


class OwnSuggestions(Protocol):
    """What `OwnCommands` does for the prompt."""

    def suggest(self) -> list[Suggestion]: ...


class OutboxControl(Protocol):
    """What `Outbox` does for the others."""

    @property
    def own(self) -> "OwnSuggestions": ...

    def attach(self, path: Path) -> None: ...

    def recall(self, text: str) -> None: ...

    async def paste_clipboard(self) -> None: ...

    def attach_image(self, image: Image, name: str) -> None: ...

    async def send(self, text: str, *, after_run: bool = False) -> None: ...


class CommandControl(Protocol):
    """What `CommandRunner` does for the others."""

    async def run(self, command: Slash, argument: str) -> None: ...


class DepartureControl(Protocol):
    """What `Departure` does for the others."""

    is_moving: bool

    def ask(self) -> None: ...

    def on_home_released(self) -> None: ...


# ── The app ──


class ControlledApp(Protocol):
    """What controllers use of `TreadleApp`."""

    link: HomeLink
    chat: Chat
    preferences: Preferences
    palette: Palette
    themes: Themes
    key_map: KeyMap
    history: MessageHistory

    # Widgets
    view: TranscriptView
    child_bar: Static
    banner: Static
    notice: Static
    panel: ApprovalPanel
    plan: PlanPanel
    extras: PromptExtras
    prompt: MessageEditor
    status: StatusLine

    # Controllers
    @property
    def display_state(self) -> DisplayControl: ...

    @property
    def input(self) -> PromptControl: ...

    @property
    def review(self) -> ReviewControl: ...

    @property
    def outbox(self) -> OutboxControl: ...

    @property
    def runner(self) -> CommandControl: ...

    @property
    def child_runs(self) -> ChildControl: ...

    @property
    def departure(self) -> DepartureControl: ...

    # Its own methods
    @property
    def folder(self) -> Path: ...

    def flash(self, text: str) -> None: ...

    def ring(self, text: str) -> None: ...

    def write_terminal(self, sequence: str) -> None: ...

    def welcome(self) -> None: ...

    def perform(self, work: Awaitable[object]) -> None: ...

    async def ask(self, screen: Screen[Result]) -> Result | None: ...

    async def lend_terminal(self, work: Callable[[], Result]) -> Result: ...

    async def stop_run(self) -> None: ...

    def save_preferences(self, **changes: object) -> None: ...

    def use_theme(self, name: str) -> None: ...

    def action_help(self) -> None: ...

    def action_toggle_details(self) -> None: ...

    def action_toggle_thinking(self) -> None: ...

    # Methods of Textual
    @property
    def clipboard(self) -> str: ...

    @property
    def is_running(self) -> bool: ...

    @property
    def focused(self) -> Widget | None: ...

    def set_timer(self, delay: float, callback: Callable[[], None]) -> Timer: ...

    def set_interval(self, interval: float, callback: Callable[[], None], *, pause: bool = False) -> Timer: ...

    def push_screen(
        self, screen: Screen[Result], callback: Callable[[Result | None], None] | None = None
    ) -> object: ...

    def copy_to_clipboard(self, text: str) -> None: ...

    def exit(self, result: Leaving | None = None) -> None: ...
