"""Opens the terminal UI, and cleans up after it."""

import asyncio
import gc
import logging
import os
import sys
from collections.abc import Generator
from contextlib import contextmanager

from msgspec import Struct

from treadle.api.engine import HostedEngine, create_engine
from treadle.bootstrap.stores import ONLY_OWN
from treadle.config.home import Home
from treadle.domain.errors import UnknownSession, UsageError
from treadle.domain.ids import SessionId
from treadle.domain.modes import ApprovalMode
from treadle.surfaces.home_access.connection import current_home
from treadle.surfaces.home_access.home_link import HomeLink
from treadle.surfaces.home_access.references import LAST, find_session
from treadle.surfaces.home_access.session_folder import FolderChoice, choose_folder, find_agent_of_session
from treadle.surfaces.terminal.output import note
from treadle.surfaces.terminal.text import columns
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.leaving import Leaving
from treadle.surfaces.tui.opening import Opening
from treadle.surfaces.tui.preferences import read_preferences

CLOSE_SECONDS = 3.0


class ChatOptions(Struct, frozen=True):
    """The options of `treadle chat`."""

    agent: str = "default"
    message: str = ""
    """What is sent first."""
    model: str | None = None
    mode: ApprovalMode | None = None
    session: str | None = None
    chooses: bool = False
    """Whether the user chooses a session first."""
    inline: bool = False
    folder: FolderChoice | None = None
    """Where a session of another workspace continues."""
    new: bool = False
    """Whether an empty database may replace a missing one."""


async def open_chat(options: ChatOptions) -> int:
    """Open the terminal UI until the user leaves it."""
    if not (sys.stdin and sys.stdin.isatty() and sys.stdout.isatty()):
        raise UsageError(texts.NEEDS_TERMINAL)
    home = current_home(options.new)
    if options.agent != "default":
        home.refuse_unknown(options.agent)
    link = HomeLink(home, lambda: make_quiet_engine(home))
    await link.open()
    try:
        session = await _find_session(link, options)
        folder = "" if session is None else await _choose_folder(link, session, options)
        opening = Opening(
            session=session,
            folder=folder,
            model=options.model,
            message=options.message,
            chooses=options.chooses,
            mode=options.mode,
        )
        if options.inline or os.environ.get("TERM") == "dumb":
            from treadle.surfaces.tui.inline import InlineChat

            return await InlineChat(link, options.agent, opening).hold()
        return await _show(link, home, options.agent, opening)
    finally:
        closing = asyncio.create_task(link.close())
        await asyncio.wait({closing}, timeout=CLOSE_SECONDS)


async def _show(link: HomeLink, home: Home, agent: str, opening: Opening) -> int:
    from treadle.surfaces.tui.app import TreadleApp
    from treadle.surfaces.tui.background_colour import detect_background
    from treadle.surfaces.tui.scrollback import print_transcript

    preferences, problems = read_preferences(home.path)
    background = detect_background() if preferences.theme is None else None
    app = TreadleApp(link, agent, preferences, opening, background, problems)
    _tune_collector()
    with _quiet_logs(app):
        left = await app.run_async(mouse=preferences.mouse)
    print_transcript(app.chat.transcript, app.palette, columns())
    _say_goodbye(left or Leaving(), app.chat.session_id)
    return app.return_code or 0


def _tune_collector() -> None:
    """Leave out what lives as long as the UI from garbage collection, whose pauses would delay keys."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 50)


def _say_goodbye(left: Leaving, session_id: SessionId | None) -> None:
    match left.kind:
        case "background" | "abandoned":
            note(texts.LEFT_BACKGROUND.format(run_id=left.run_id, session_id=session_id))
        case "parked":
            note(texts.LEFT_PARKED.format(run_id=left.run_id, session_id=session_id))
        case _ if session_id is not None:
            note(texts.RESUME_HINT.format(session_id=session_id))
        case _:
            pass


def make_quiet_engine(home: Home) -> HostedEngine:
    """Return an engine that executes only the runs of this process and prints nothing."""
    engine = create_engine(home=home, share=ONLY_OWN)
    engine.models.local.notice = lambda text: None
    return engine


async def _find_session(link: HomeLink, options: ChatOptions) -> SessionId | None:
    if (wanted := options.session) is None:
        return None
    try:
        return await find_session(link, wanted, whole_title=True)
    except UnknownSession as error:
        if wanted == LAST:
            raise UsageError(str(error)) from None
        raise UsageError(f"There is no session `{wanted}`. `treadle sessions list --all` shows them.") from None


async def _choose_folder(link: HomeLink, session: SessionId, options: ChatOptions) -> str:
    """Return the folder in which a session continues; empty: the current one."""
    agent = await find_agent_of_session(link, link.home, session, options.agent)
    chosen = await choose_folder(link, session, agent, options.folder)
    return "" if chosen.workspace is None or agent.workspace is not None else chosen.workspace


class _FlashHandler(logging.Handler):
    """Shows log records in the UI instead of on the screen that it draws."""

    def __init__(self, app: object) -> None:
        super().__init__(logging.WARNING)
        self._app = app

    def emit(self, record: logging.LogRecord) -> None:
        flash = getattr(self._app, "flash", None)
        if flash is not None and getattr(self._app, "is_running", False):
            flash(record.getMessage())


@contextmanager
def _quiet_logs(app: object) -> Generator[None]:
    """Keep the log off the terminal while the UI draws on it."""
    root = logging.getLogger()
    before = root.handlers
    root.handlers = list[logging.Handler]([_FlashHandler(app)])
    try:
        yield
    finally:
        root.handlers = before
