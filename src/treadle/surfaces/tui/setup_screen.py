"""The first start: no model is set yet. The user chooses one, or enters a key or an address; it is tested and
saved."""

import asyncio

from rich.style import Style
from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import Screen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from treadle.domain.errors import TreadleError
from treadle.home.model_setup import FoundModel, ModelSetup, find_models
from treadle.surfaces.home_access.home_link import HomeLink
from treadle.surfaces.markdown.palette import Palette
from treadle.surfaces.terminal.download_bar import draw_bar
from treadle.surfaces.terminal.setup_conversation import (
    KEY_ROW,
    LOOKING,
    SERVER_ROW,
    AppliedSetup,
    SetupFunctions,
    read_key,
    read_server,
    try_setup,
)
from treadle.surfaces.terminal.text import one_line
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.suggestions import rank

ENTER_KEY = FoundModel(KEY_ROW, "stored in the vault")
ENTER_ADDRESS = FoundModel(SERVER_ROW, "any OpenAI-compatible API")
ACTIONS = (ENTER_KEY, ENTER_ADDRESS)


class SetupScreen(Screen[AppliedSetup | None]):
    """Returns the model that was set up; None if none was."""

    DEFAULT_CSS = """
    SetupScreen { align: center middle; background: $background; }
    SetupScreen Vertical {
        width: 90; max-width: 96%; height: auto; max-height: 90%; background: $surface; border: round $primary;
        padding: 0 2;
    }
    SetupScreen Static { height: auto; margin: 1 0 0 0; }
    SetupScreen Input { border: none; height: 1; padding: 0; background: $panel; margin: 1 0 0 0; }
    SetupScreen Input:focus { border: none; height: 1; }
    SetupScreen OptionList {
        height: auto; max-height: 14; border: none; padding: 0; background: $surface; margin: 1 0 0 0;
    }
    """

    def __init__(self, link: HomeLink, palette: Palette) -> None:
        super().__init__()
        self._link = link
        self._palette = palette
        self._found: list[FoundModel] = []
        self._shown: list[FoundModel] = []
        self._is_busy = False
        self._answer: asyncio.Future[str | None] | None = None
        """The question that is open."""
        self._percent = -1
        self._surface = SetupFunctions(
            lambda text: self._say("hint", text, self._palette.accent),
            self._ask,
            lambda question: self._ask(question, hidden=True),
            self._show_progress,
        )

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = texts.SETUP_TITLE
            yield Static(Text(LOOKING, self._palette.text), id="intro")
            yield Input(placeholder=texts.PICKER_SEARCH)
            yield OptionList()
            yield Static(Text(texts.SETUP_HINT, self._palette.dim), id="hint")

    def on_mount(self) -> None:
        field = self.query_one(Input)
        field.cursor_blink = False
        self.set_focus(field)  # at once: the next key is meant for it
        self._filter("")
        self.run_worker(self._look())

    async def _look(self) -> None:
        try:
            models, problems = await find_models(self._link.home)
        except TreadleError as error:
            self._say("intro", str(error), self._palette.error)
            return
        self._found = list(models)
        if self._answer is None:
            self._show_list()
            if problems:
                self._say("hint", " ".join(problems), self._palette.error)

    def _say(self, where: str, text: str, style: Style) -> None:
        self.query_one(f"#{where}", Static).update(Text(one_line(text), style))

    # ── The list ──

    def _show_list(self) -> None:
        self._say("intro", texts.SETUP_INTRO, self._palette.text)
        self.query_one(OptionList).display = True
        self._filter(self.query_one(Input).value)

    def _filter(self, query: str) -> None:
        by_name = {model.name: model for model in (*self._found, *ACTIONS)}
        found = [by_name[name] for name in rank(query, list(by_name), 200)] if query else list(by_name.values())
        if "/" in query and query.strip() not in by_name:
            found.append(FoundModel(query.strip(), texts.USE_TYPED))
        self._shown = found
        listed = self.query_one(OptionList)
        listed.clear_options()
        listed.add_options([Option(self._draw(model)) for model in found])
        if found:
            listed.highlighted = 0

    def _draw(self, model: FoundModel) -> Text:
        text = Text(no_wrap=True, overflow="ellipsis")
        text.append(one_line(model.name), self._palette.accent if model in ACTIONS else self._palette.text)
        text.append(f"   {one_line(model.source)}", self._palette.dim)
        return text

    @on(Input.Changed)
    def _on_changed(self, event: Input.Changed) -> None:
        if self._answer is None:
            self._filter(event.value)

    @on(Input.Submitted)
    def _on_submitted(self, event: Input.Submitted) -> None:
        if self._answer is not None:
            self._close_question(event.value)
            return
        index = self.query_one(OptionList).highlighted
        if index is not None and index < len(self._shown):
            self._choose(self._shown[index])

    @on(OptionList.OptionSelected)
    def _on_selected(self, event: OptionList.OptionSelected) -> None:
        self._choose(self._shown[event.option_index])

    def _choose(self, model: FoundModel) -> None:
        if not self._is_busy:
            self._is_busy = True
            self.run_worker(self._set_up(model))

    async def _set_up(self, model: FoundModel) -> None:
        """Ask what is missing, test and save. The hint says what went wrong."""
        try:
            setup: ModelSetup | None = ModelSetup(model.name)
            if model is ENTER_KEY:
                setup = await read_key(self._link.home, self._surface)
            elif model is ENTER_ADDRESS:
                setup = await read_server(self._surface)
            if setup is None or setup == ModelSetup():
                self._say("hint", texts.SETUP_HINT, self._palette.dim)
                return
            applied = await try_setup(self._link.home, setup, self._surface)
            if applied is not None:
                self.dismiss(applied)
        except (TreadleError, OSError) as error:
            self._say("hint", str(error), self._palette.error)
        finally:
            self._is_busy = False
            if self.is_current:
                self._show_list()

    # ── Questions ──

    async def _ask(self, question: str, *, hidden: bool = False) -> str | None:
        """Show a question in place of the list, and return its answer; None if the user goes back."""
        self._say("intro", question, self._palette.text)
        self._say("hint", texts.SETUP_ASKED, self._palette.dim)
        self.query_one(OptionList).display = False
        field = self.query_one(Input)
        answer = self._answer = asyncio.get_running_loop().create_future()
        field.placeholder, field.password, field.value = "", hidden, ""
        try:
            return await answer
        finally:
            self._answer = None
            field.placeholder, field.password, field.value = texts.PICKER_SEARCH, False, ""

    def _close_question(self, answer: str | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)

    def _show_progress(self, done: int, total: int) -> None:
        percent = 100 * done // total if total else 0
        if percent != self._percent:
            self._percent = percent
            bar = draw_bar(texts.EMBEDDED, done, total).rstrip()
            self._say("hint", texts.SETUP_DOWNLOADING.format(bar=bar), self._palette.accent)

    def on_key(self, event: events.Key) -> None:
        listed = self.query_one(OptionList)
        match event.key:
            case "escape" | "ctrl+c":
                event.stop()
                if self._answer is not None:
                    self._close_question(None)
                else:
                    self.dismiss(None)
            case "down":
                event.stop()
                listed.action_cursor_down()
            case "up":
                event.stop()
                listed.action_cursor_up()
            case _:
                pass
