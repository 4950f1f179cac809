"""The first start: no model is set yet. The user chooses one of what was found; it is tested and saved."""

from rich.style import Style
from rich.text import Text
from textual import events, on
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.screen import Screen
from textual.widgets import Input, OptionList, Static
from textual.widgets.option_list import Option

from treadle.domain.errors import TreadleError
from treadle.surfaces.cli.home_link import HomeLink
from treadle.surfaces.cli.terminal import one_line
from treadle.surfaces.markdown.palette import Palette
from treadle.surfaces.tui import texts
from treadle.surfaces.tui.model_choice import FoundModel, find_models, save_default_model, try_model
from treadle.surfaces.tui.suggestions import rank


class SetupScreen(Screen[str | None]):
    """Returns what to tell the user after a model was set; None if none was."""

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
        self._is_testing = False

    def compose(self) -> ComposeResult:
        with Vertical() as box:
            box.border_title = texts.SETUP_TITLE
            yield Static(Text(texts.SETUP_LOOKING, self._palette.text), id="intro")
            yield Input(placeholder=texts.PICKER_SEARCH)
            yield OptionList()
            yield Static(Text(texts.SETUP_HINT, self._palette.dim), id="hint")

    def on_mount(self) -> None:
        field = self.query_one(Input)
        field.cursor_blink = False
        self.set_focus(field)  # at once: the next key is meant for it
        self.run_worker(self._look())

    async def _look(self) -> None:
        try:
            self._found = await find_models(self._link.home)
        except TreadleError as error:
            self._say("intro", str(error), self._palette.error)
            return
        intro = texts.SETUP_INTRO if self._found else texts.SETUP_NOTHING
        self._say("intro", intro, self._palette.text)
        self._filter(self.query_one(Input).value)

    def _say(self, where: str, text: str, style: Style) -> None:
        self.query_one(f"#{where}", Static).update(Text(one_line(text), style))

    def _filter(self, query: str) -> None:
        by_name = {model.name: model for model in self._found}
        found = [by_name[name] for name in rank(query, list(by_name), 200)] if query else list(self._found)
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
        text.append(one_line(model.name), self._palette.text)
        text.append(f"   {one_line(model.source)}", self._palette.dim)
        return text

    @on(Input.Changed)
    def _on_changed(self, event: Input.Changed) -> None:
        self._filter(event.value)

    @on(Input.Submitted)
    def _on_submitted(self) -> None:
        index = self.query_one(OptionList).highlighted
        if index is not None and index < len(self._shown):
            self._test(self._shown[index])

    @on(OptionList.OptionSelected)
    def _on_selected(self, event: OptionList.OptionSelected) -> None:
        self._test(self._shown[event.option_index])

    def _test(self, model: FoundModel) -> None:
        if not self._is_testing:
            self._is_testing = True
            self._say("hint", texts.SETUP_TESTING.format(model=model.name), self._palette.accent)
            self.run_worker(self._test_and_save(model))

    async def _test_and_save(self, model: FoundModel) -> None:
        try:
            seconds, failure = await try_model(self._link.home, model.name)
            if failure is not None:
                self._say("hint", texts.SETUP_FAILED.format(model=model.name, error=failure), self._palette.error)
                return
            path = save_default_model(self._link.home, model.name)
        except (TreadleError, OSError) as error:
            self._say("hint", texts.SETUP_FAILED.format(model=model.name, error=error), self._palette.error)
            return
        finally:
            self._is_testing = False
        self.dismiss(texts.SETUP_WORKS.format(model=model.name, seconds=seconds, path=path))

    def on_key(self, event: events.Key) -> None:
        listed = self.query_one(OptionList)
        match event.key:
            case "escape" | "ctrl+c":
                event.stop()
                self.dismiss(None)
            case "down":
                event.stop()
                listed.action_cursor_down()
            case "up":
                event.stop()
                listed.action_cursor_up()
            case _:
                pass
